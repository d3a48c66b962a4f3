"""Dated lines, two candidate answers, and what a quote shows. Pure functions of a seed.

A line is one word: a slot, its value and the day on which it was noted ("redkatue"). The question is about one slot,
its two candidates A and B are facts ("redka"), and the latest line about the slot holds. What a judge sees of a quote
is one word as well: its day and whether it supports A, B or neither ("tueA", "sunN").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from turnwise.core.seeds import rng

SLOTS = ("red", "gold")
VALUES = ("ka", "lo", "mi")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""In order."""
NUM_LINES = 6
NUM_RELEVANT = 4
"""Lines about the slot of the question; at least one supports each candidate."""
Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
NEITHER = "N"
NOTHING = "nothing"
"""What a quote shows that is no line, and what a debater reads where nobody has spoken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is to be judged."""

    lines: tuple[str, ...]
    """In the order of their days, each on a day of its own."""
    candidates: tuple[str, str]
    """Of A and of B: two facts of the same slot."""

    @property
    def truth(self) -> Side:
        """The side that the latest relevant line supports."""
        return next(side for line in reversed(self.lines) if (side := self.find_side(line)) is not None)

    def find_side(self, line: str) -> Side | None:
        """The side that a line supports, whether or not it is in the record; None for neither."""
        fact = line[: -len(DAYS[0])]
        return SIDES[self.candidates.index(fact)] if fact in self.candidates else None

    def list_support(self, side: Side) -> list[str]:
        """The lines that support a side, the latest last."""
        return [line for line in self.lines if self.find_side(line) == side]

    def accept(self, quote: str, *, verify: bool) -> str:
        """The quote; `NOTHING` if it is no line, or is not in the record where quotes are verified."""
        return quote if quote in (self.lines if verify else ALL_LINES) else NOTHING

    def show(self, quote: str) -> str:
        """What the judge sees of an accepted quote: its day with A, B or N; `NOTHING` of nothing."""
        return NOTHING if quote == NOTHING else quote[-len(DAYS[0]) :] + (self.find_side(quote) or NEITHER)

    def swap(self) -> Case:
        """The same record with A and B in each other's place."""
        return Case(lines=self.lines, candidates=(self.candidates[1], self.candidates[0]))


ALL_LINES = frozenset(slot + value + day for slot in SLOTS for value in VALUES for day in DAYS)


def build_case(seed: int) -> Case:
    """The case of a seed; either side is as likely to be right."""
    random = rng(seed, "case")
    slot = random.choice(SLOTS)
    first, second = random.sample([slot + value for value in VALUES], 2)
    count = random.randrange(1, NUM_RELEVANT)
    facts = [first] * count + [second] * (NUM_RELEVANT - count)
    others = [other for other in SLOTS if other != slot]
    facts += [random.choice(others) + random.choice(VALUES) for _ in range(NUM_LINES - NUM_RELEVANT)]
    random.shuffle(facts)
    days = sorted(random.sample(range(len(DAYS)), NUM_LINES))
    lines = tuple(fact + DAYS[day] for fact, day in zip(facts, days, strict=True))
    return Case(lines=lines, candidates=(first, second))


def draw_quotes(case: Case, count: int, random: Random) -> list[str]:
    """Any lines of the record, the same one maybe twice."""
    return [random.choice(case.lines) for _ in range(count)]


def draw_hard_quotes(case: Case, count: int, random: Random) -> list[str]:
    """The latest line of either side with irrelevant lines, the later ones rather, in any order: `count` of at least 2.

    The truth is certain, and the latest quote may show nothing."""
    late = [line for line in reversed(case.lines) if case.find_side(line) is None]
    quotes = [*(case.list_support(side)[-1] for side in SIDES), *late][:count]
    random.shuffle(quotes)
    return quotes


def find_verdict(shown: Sequence[str]) -> Side | None:
    """The side of the latest quote that supports one; None where none does, or where both do on that day."""
    days = {side: max((DAYS.index(word[:-1]) for word in shown if word[-1:] == side), default=-1) for side in SIDES}
    if days["A"] == days["B"]:
        return None
    return "A" if days["A"] > days["B"] else "B"
