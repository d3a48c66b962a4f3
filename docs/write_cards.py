"""Write the card of every installed recipe beside it, and the table of docs/cards.md: `make cards`.

    python docs/write_cards.py [NAME ...]

With names, only these cards are measured; the table is made of all cards that are there.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from turnwise.cards.card import SUFFIX
from turnwise.config.shipped import Shipped, list_shipped
from turnwise.core.errors import TurnwiseError
from turnwise.runs.card import load_subject, make_card, names_no_environment, write_part_page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cards.md"
START, END = "<!-- cards -->\n", "<!-- end of cards -->\n"
WORDS = ("do not believe", "cannot say", "believe")


def write_card(shipped: Shipped) -> str:
    """Measure and write one card; its first line."""
    if names_no_environment(shipped.path):
        page = write_part_page(shipped)
    else:
        config, facts = load_subject([Path(shipped.name)])
        page = make_card(config, facts).to_page()
    page_path(shipped).write_text(page, encoding="utf-8")
    return page.partition("\n")[0]


def page_path(shipped: Shipped) -> Path:
    """The card's file."""
    return shipped.path.with_name(shipped.path.stem + SUFFIX)


def write_table(recipes: list[Shipped]) -> str:
    """Every recipe with its card's first line, by verdict."""
    rows = []
    for shipped in recipes:
        line = page_path(shipped).read_text(encoding="utf-8").partition("\n")[0]
        word, _, text = line.partition(": ")
        rows.append((WORDS.index(word), shipped.name, word, text))
    lines = [f"| {name} | {word} | {text} |" for _, name, word, text in sorted(rows)]
    counts = ", ".join(f"{sum(row[2] == word for row in rows)} {word}" for word in reversed(WORDS))
    return "\n".join(
        [f"{len(rows)} recipes: {counts}.", "", "| recipe | | for what, or why not |", "|---|---|---|", *lines]
    )


def main(names: list[str]) -> None:
    """Write the cards and the table. Exits with 1 if a card cannot be made."""
    sys.path.insert(0, str(ROOT / "examples"))  # what recipes/agents names
    recipes, failed = list_shipped()[0], 0
    for shipped in recipes:
        if names and shipped.name not in names:
            continue
        started = time.perf_counter()
        try:
            line = write_card(shipped)
        except TurnwiseError as cause:
            line, failed = f"ERROR {cause}", failed + 1
        print(f"{time.perf_counter() - started:6.1f} s  {shipped.name}: {line}", flush=True)
    text = PAGE.read_text(encoding="utf-8")
    table = f"{START}\n{write_table(recipes)}\n\n{END}" if not failed else f"{START}{END}"
    PAGE.write_text(re.sub(f"{START}.*{END}", lambda _: table, text, flags=re.DOTALL), encoding="utf-8")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
