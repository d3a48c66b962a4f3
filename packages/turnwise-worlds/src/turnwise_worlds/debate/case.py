"""Dated lines, two candidate answers, and what a quote shows. Pure functions of a seed.

A line is one word: a slot, its value and the day on which it was noted ("redkatue"). The question is about one slot,
the two candidates A and B are facts ("redka"), and the latest line about the slot is true. The judge sees one word of a
quote: its day and whether it supports A, B or neither ("tueA", "sunN").
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
"""The days, in order."""
NUM_LINES = 6
NUM_RELEVANT = 4
"""Number of lines about the slot in question; at least one supports each candidate."""
Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
NEITHER = "N"
NOTHING = "nothing"
"""Shown for a quote that is not a line, and read by a debater if nobody has spoken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case to be judged."""

    lines: tuple[str, ...]
    """The record's lines in the order of their days, all on different days."""
    candidates: tuple[str, str]
    """The candidates A and B: two facts about the same slot."""

    @property
    def truth(self) -> Side:
        """The side that the latest relevant line supports."""
        return next(side for line in reversed(self.lines) if (side := self.find_side(line)) is not None)

    def find_side(self, line: str) -> Side | None:
        """Return the side that a line supports, whether or not it is in the record; None for neither."""
        fact = line[: -len(DAYS[0])]
        return SIDES[self.candidates.index(fact)] if fact in self.candidates else None

    def list_support(self, side: Side) -> list[str]:
        """Return the lines that support a side, the latest last."""
        return [line for line in self.lines if self.find_side(line) == side]

    def accept(self, quote: str, *, verify: bool) -> str:
        """Return the quote; `NOTHING` if it is not a line, or if quotes are verified and it is not in the record."""
        return quote if quote in (self.lines if verify else ALL_LINES) else NOTHING

    def show(self, quote: str) -> str:
        """Return what the judge sees of an accepted quote: its day with A, B or N; `NOTHING` for `NOTHING`."""
        return NOTHING if quote == NOTHING else quote[-len(DAYS[0]) :] + (self.find_side(quote) or NEITHER)

    def swap(self) -> Case:
        """Return the same record with A and B exchanged."""
        return Case(lines=self.lines, candidates=(self.candidates[1], self.candidates[0]))


ALL_LINES = frozenset(slot + value + day for slot in SLOTS for value in VALUES for day in DAYS)


def build_case(seed: int) -> Case:
    """Build the case of a seed; both sides are equally likely to be right."""
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
    """Draw any lines of the record, possibly the same one twice."""
    return [random.choice(case.lines) for _ in range(count)]


def draw_hard_quotes(case: Case, count: int, random: Random) -> list[str]:
    """Draw the latest line of either side and irrelevant lines, preferably late ones, in random order: `count` (at
    least 2) in all.

    The truth can be inferred, although the latest quote may show nothing."""
    late = [line for line in reversed(case.lines) if case.find_side(line) is None]
    quotes = [*(case.list_support(side)[-1] for side in SIDES), *late][:count]
    random.shuffle(quotes)
    return quotes


def find_verdict(shown: Sequence[str]) -> Side | None:
    """Return the side of the latest quote that supports one; None if no quote does, or if both sides are supported on
    that day."""
    days = {side: max((DAYS.index(word[:-1]) for word in shown if word[-1:] == side), default=-1) for side in SIDES}
    if days["A"] == days["B"]:
        return None
    return "A" if days["A"] > days["B"] else "B"
