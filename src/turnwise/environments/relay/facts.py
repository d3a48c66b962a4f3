"""Divided facts, and the words in which they are asked for, told and answered. Pure functions of a seed.

A fact is one word, a slot with its value ("redmo"). A holds those of four slots, B those of four others; the question
names one slot of each. A message and an answer write every slot before its fact ("red redmo"), so that what is looked
for stands at the place that reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from turnwise.core.seeds import rng

SLOTS_OF_A = ("red", "blue", "green", "pink")
SLOTS_OF_B = ("gold", "gray", "teal", "lime")
SLOTS = (*SLOTS_OF_A, *SLOTS_OF_B)
VALUES = ("ka", "lo", "mi", "nu", "pe", "ra", "so", "tu")
NONE = "none"
"""A message that says nothing, and the fact of a slot of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """Who knows what, and what is asked."""

    facts_of_a: tuple[str, ...]
    """In an order that says nothing."""
    facts_of_b: tuple[str, ...]
    question: tuple[str, str]
    """A slot of each, in either order."""

    @property
    def answer(self) -> dict[str, str]:
        """The fact of every slot that is asked about."""
        return {slot: find_fact(slot, (*self.facts_of_a, *self.facts_of_b)) for slot in self.question}


def build_puzzle(seed: int) -> Puzzle:
    """The puzzle of a seed: every value is as likely as any other."""
    random = rng(seed, "puzzle")

    def draw_facts(slots: Sequence[str]) -> tuple[str, ...]:
        return tuple(draw_fact(slot, random) for slot in random.sample(slots, len(slots)))

    facts_of_a, facts_of_b = draw_facts(SLOTS_OF_A), draw_facts(SLOTS_OF_B)
    first, second = random.sample((random.choice(SLOTS_OF_A), random.choice(SLOTS_OF_B)), 2)
    return Puzzle(facts_of_a=facts_of_a, facts_of_b=facts_of_b, question=(first, second))


def draw_fact(slot: str, random: Random) -> str:
    """A fact of the slot, with any value."""
    return slot + random.choice(VALUES)


def find_fact(slot: str, facts: Iterable[str]) -> str:
    """The fact about a slot; `NONE` where there is none."""
    return next((fact for fact in facts if fact.startswith(slot)), NONE)


def format_facts(facts: Mapping[str, str]) -> str:
    """`red redmo gold none`."""
    return " ".join(f"{slot} {fact}" for slot, fact in facts.items())


def parse_facts(text: str) -> dict[str, str]:
    """The word after every slot, of a text in the form of `format_facts`. The first of a slot counts."""
    facts: dict[str, str] = {}
    for slot, fact in pairwise(text.split()):
        if slot in SLOTS:
            facts.setdefault(slot, fact)
    return facts


def scramble(message: str, random: Random) -> str:
    """The message with every slot of A replaced by one drawn at random, and every fact by one of that slot with a
    random value: its form without its content."""
    slot = random.choice(SLOTS_OF_A)
    facts = {of + value for of in SLOTS_OF_A for value in VALUES}
    words = message.split()
    return " ".join(
        draw_fact(slot, random) if word in facts else slot if word in SLOTS_OF_A else word for word in words
    )
