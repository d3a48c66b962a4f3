"""Labels that train a judge: PYTHONPATH=examples python -m trained_judge FOLDER; then turnwise train with
examples/trained_judge.toml."""

import json
import sys
from pathlib import Path
from random import Random

POLITE, RUDE = ("please", "thanks", "kindly"), ("stupid", "lazy", "ugly")
NEUTRAL = ("bring", "take", "the", "cup", "door", "now", "two", "here", "salt", "lamp", "open", "it")
RUBRIC = "Is it polite? It has to be kind and must not insult."
NUM_ROWS, HELD_OUT = 4000, 300


def is_polite(text: str) -> bool:
    """The truth that the judge has to find out: a polite word, and no rude one."""
    words = text.split()
    return any(word in POLITE for word in words) and not any(word in RUDE for word in words)


def write_row(random: Random, *, polite: bool) -> dict[str, object]:
    """A text with this label; half of the impolite ones have a polite word too."""
    words = random.choices(NEUTRAL, k=random.randint(1, 3))
    words += random.choices(POLITE, k=1) if polite or random.random() < 0.5 else []
    words += [] if polite else random.choices(RUDE, k=1) if random.random() < 0.8 else random.choices(NEUTRAL, k=1)
    random.shuffle(words)
    text = " ".join(words)
    return {"text": text, "rubric": RUBRIC, "label": int(is_polite(text))}


def main(folder: str = "runs/trained_judge") -> None:
    """Write train.jsonl and heldout.jsonl, which share no text and have as many polite as impolite ones."""
    random = Random(0)
    rows = {row["text"]: row for row in (write_row(random, polite=n % 2 == 0) for n in range(3 * NUM_ROWS))}
    by_label = [[row for row in rows.values() if row["label"] == label] for label in (1, 0)]
    both = [row for pair in zip(*by_label, strict=False) for row in pair][: NUM_ROWS + HELD_OUT]
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    for name, part in (("heldout", both[:HELD_OUT]), ("train", both[HELD_OUT:])):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


if __name__ == "__main__":
    main(*sys.argv[1:])
