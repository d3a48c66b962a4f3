"""Pages of a generated world: each states one fact, in a year and by a source; some are contradicted by a better one.

1987 register : The author of Blue Lantern is Mira Tolen [doc 17]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.seeds import rng
from turnwise.core.types import Message
from turnwise.environments.search_qa.corpus import Passage, read_fact, state
from turnwise.environments.search_qa.wordings import Style
from turnwise.environments.search_qa.world import RELATIONS, Fact, World
from turnwise_rewards.grounding.world.arguments import PagesArguments, Rule

SOURCES = {"register": 2, "newspaper": 1, "rumour": 0}
"""Kinds of sources with their reliability."""
FIRST_YEAR = 1970
RULES: dict[Rule, str] = {
    "later": "the later one is right and, of two of the same year, a register before a newspaper before a rumour",
    "trusted": "a register is right before a newspaper before a rumour and, of two of the same kind, the later one",
}
"""What a task says about pages that disagree."""
_LINE = re.compile(r"(?P<year>\d{4}) (?P<source>\w+) : (?P<statement>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page."""

    id: str
    """A number."""
    fact: Fact
    """Relation and subject."""
    value: str
    year: int
    source: str
    """A key of `SOURCES`."""
    text: str

    @property
    def rank(self) -> tuple[int, int]:
        """Year and reliability, as `order_rank` takes them."""
        return self.year, SOURCES[self.source]


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """All pages of a world."""

    pages: tuple[Page, ...]
    """In a random order, with ids from 1 to their number."""
    truth: Mapping[Fact, str]
    """What the best page says about each fact."""
    disputed: frozenset[Fact]
    """Facts on which two pages disagree."""

    def passages(self) -> tuple[Passage, ...]:
        """The pages for an index."""
        return tuple(Passage(page.id, page.fact[1], page.text) for page in self.pages)


def order_rank(rank: tuple[int, int], rule: Rule) -> tuple[int, int]:
    """Return year and reliability in the order in which the rule compares them: of two pages that contradict each other
    the higher one is right."""
    year, reliability = rank
    return (year, reliability) if rule == "later" else (reliability, year)


def write_library(world: World, seed: int, chosen: PagesArguments, rule: Rule) -> Library:
    """Write a page for every fact of a world, and for a share of them a second one that is worse by the rule. Pure."""
    random = rng(seed, "pages")
    style = Style(num_phrasings=chosen.num_phrasings)
    drafts: list[tuple[Fact, str, int, str]] = []
    disputed: set[Fact] = set()
    by_type: dict[str, list[str]] = {}
    for name, kind in world.types.items():
        by_type.setdefault(kind, []).append(name)
    for fact, value in world.facts.items():
        others = [name for name in by_type[RELATIONS[fact[0]][1]] if name not in (value, fact[1])]
        if others and random.random() < chosen.contradictions:
            disputed.add(fact)
            better, worse = _draw_pair(random, chosen, rule)
            drafts += [(fact, value, *better), (fact, random.choice(others), *worse)]
        else:
            drafts.append((fact, value, _draw_year(random, chosen), random.choice(list(SOURCES))))
    random.shuffle(drafts)
    pages = tuple(
        Page(
            id=str(number),
            fact=fact,
            value=value,
            year=year,
            source=source,
            text=f"{year} {source} : {state(fact, value, random, style).removesuffix('.')}",
        )
        for number, (fact, value, year, source) in enumerate(drafts, 1)
    )
    return Library(pages=pages, truth=dict(world.facts), disputed=frozenset(disputed))


def show_pages(pages: Sequence[tuple[str, str]]) -> str:
    """Write (id, text) of pages as the tools show them, a line each."""
    return "".join(f"{text} [doc {name}]\n" for name, text in pages)


def read_page(text: str) -> tuple[tuple[int, int], Fact, str] | None:
    """Return rank, fact and value of a page's text; None if it is none. Inverse of what `write_library` writes."""
    line = _LINE.fullmatch(text.strip())
    stated = line and read_fact(f"{line['statement']}.")
    if not line or not stated or line["source"] not in SOURCES:
        return None
    return (int(line["year"]), SOURCES[line["source"]]), (stated[0], stated[1]), stated[2]


@dataclass(frozen=True, slots=True)
class Shown:
    """A page in a tool's answer."""

    id: str
    text: str
    """Its text, or its title."""

    @property
    def content(self) -> tuple[tuple[int, int], Fact, str] | None:
        """What `read_page` reads; None if only the title was shown."""
        return read_page(self.text)


def list_shown(messages: Sequence[Message]) -> list[Shown]:
    """Return the pages that the tools' answers show, in order, with repetitions."""
    shown: list[Shown] = []
    for message in messages:
        if message.role == "tool":
            for line in message.text.splitlines():
                text, bracket, name = line.rstrip().removesuffix("]").rpartition(" [doc ")
                if bracket:
                    shown.append(Shown(name, text))
    return shown


def _draw_year(random: Random, chosen: PagesArguments) -> int:
    return FIRST_YEAR + random.randrange(chosen.num_years)


def _draw_pair(random: Random, chosen: PagesArguments, rule: Rule) -> tuple[tuple[int, str], tuple[int, str]]:
    """Draw year and source of the right page, and of the wrong one."""
    sources = list(SOURCES)
    if (random.random() < chosen.same_year) == (rule == "later"):
        year = _draw_year(random, chosen)
        first, second = sorted(random.sample(sources, 2), key=lambda name: -SOURCES[name])
        return (year, first), (year if rule == "later" else _draw_year(random, chosen), second)
    late, early = sorted(random.sample(range(chosen.num_years), 2), reverse=True)
    source = random.choice(sources)
    return (FIRST_YEAR + late, source), (FIRST_YEAR + early, source if rule == "trusted" else random.choice(sources))
