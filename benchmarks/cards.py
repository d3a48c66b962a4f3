"""Write the card of every installed recipe beside it, and the table of docs/cards.md: `make cards`.

    python benchmarks/cards.py [NAME ...]

With names, only these cards are measured. The tables are made of all cards, and written where none is missing.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from turnwise.cards.card import SUFFIX, Card
from turnwise.cards.rules import RULES
from turnwise.config.shipped import Shipped, list_shipped
from turnwise.core.errors import TurnwiseError
from turnwise.runs.card import load_subject, make_card, names_no_environment, write_part_page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cards.md"
WORDS = ("do not believe", "cannot say", "believe")


def write_card(shipped: Shipped, made: dict[str, Card]) -> str:
    """Measure and write one card; its first line. `made` are the cards so far: parts that change nothing that is
    measured take the measurement of the recipe that they are laid over."""
    if names_no_environment(shipped.path):
        page = write_part_page(shipped)
    else:
        config, facts = load_subject([Path(shipped.name)])
        same = replace(facts, recipe="", ability="", roles={}, terms=())
        key = same.compute_digest()
        card = replace(made[key], facts=facts) if key in made else make_card(config, facts)
        made[key] = card
        page = card.to_page()
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


def write_rules() -> str:
    """The rules as a table."""
    lines = [f"| {rule.name} | {rule.states} |" for rule in RULES]
    return "\n".join(["| rule | a number is not believed if |", "|---|---|", *lines])


def fill(text: str, recipes: list[Shipped]) -> str:
    """The page with the tables of rules and of cards."""
    for name, table in (("rules", write_rules()), ("cards", write_table(recipes))):
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        head, _, rest = text.partition(start)
        text = f"{head}{start}\n{table}\n\n{end}{rest.partition(end)[2]}"
    return text


def main(names: list[str]) -> None:
    """Write the cards and the table. Exits with 1 if a card cannot be made."""
    sys.path.insert(0, str(ROOT / "examples"))  # what recipes/agents names
    recipes, failed = list_shipped()[0], 0
    made: dict[str, Card] = {}
    for shipped in recipes:
        if names and shipped.name not in names:
            continue
        started = time.perf_counter()
        try:
            line = write_card(shipped, made)
        except TurnwiseError as cause:
            line, failed = f"ERROR {cause}", failed + 1
        print(f"{time.perf_counter() - started:6.1f} s  {shipped.name}: {line}", flush=True)
    if all(page_path(shipped).is_file() for shipped in recipes):
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), recipes), encoding="utf-8")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
