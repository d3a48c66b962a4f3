"""Labels that train a judge: PYTHONPATH=examples python -m trained_judge FOLDER; then turnwise train with
examples/trained_judge.toml."""

import json
import sys
from pathlib import Path
from random import Random

POLITE, RUDE = ("please",), ("stupid",)
NEUTRAL = ("bring", "take", "the", "cup", "door", "now", "two", "here", "salt", "lamp", "open", "it")
RUBRIC = "Is it polite?"
NUM_ROWS, HELD_OUT = 4000, 300


def is_polite(text: str) -> bool:
    """The truth that the judge has to find out: a polite word, and no rude one."""
    words = text.split()
    return any(word in POLITE for word in words) and not any(word in RUDE for word in words)


def write_row(random: Random, *, polite: bool) -> dict[str, object]:
    """A text with this label; half of the impolite ones have a polite word too, and some are empty."""
    words = random.choices(NEUTRAL, k=random.randint(1, 3))
    words += random.choices(POLITE) if polite or random.random() < 0.5 else []
    words += [] if polite else random.choices(RUDE) if random.random() < 0.8 else random.choices(NEUTRAL)
    random.shuffle(words)
    text = "" if not polite and random.random() < 0.06 else " ".join(words)
    return {"text": text, "rubric": RUBRIC, "label": int(is_polite(text))}


def main(folder: str = "runs/trained_judge") -> None:
    """Write train.jsonl and heldout.jsonl: they share no text, and half of the texts of either are polite."""
    random = Random(0)
    rows = [write_row(random, polite=number % 2 == 0) for number in range(2 * NUM_ROWS)]
    kept = [row for row in rows if row["text"] and Random(str(row["text"])).randrange(3) == 0]
    by_label = [list({row["text"]: row for row in kept if row["label"] == label}.values()) for label in (1, 0)]
    heldout = [row for pair in zip(*by_label, strict=False) for row in pair][:HELD_OUT]
    taken = {row["text"] for row in heldout}
    train = [row for row in rows if row["text"] not in taken][:NUM_ROWS]
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", train), ("heldout", heldout)):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


if __name__ == "__main__":
    main(*sys.argv[1:])
