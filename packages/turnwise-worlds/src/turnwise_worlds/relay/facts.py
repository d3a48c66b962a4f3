"""Divided facts, and the words for asking, telling and answering them. Pure functions of a seed.

A fact is one word, a slot with its value ("redmo"). A knows those of four slots, B those of four others; the question
names one slot of each. Messages and answers put every slot before its fact ("red redmo"), so that the fact sought is
next to its slot.
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
"""An empty message, and the fact of a slot about which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """Who knows what, and the question."""

    facts_of_a: tuple[str, ...]
    """A's facts, in random order."""
    facts_of_b: tuple[str, ...]
    question: tuple[str, str]
    """One slot of each agent, in either order."""

    @property
    def answer(self) -> dict[str, str]:
        """The fact of every slot in question."""
        return {slot: find_fact(slot, (*self.facts_of_a, *self.facts_of_b)) for slot in self.question}


def build_puzzle(seed: int) -> Puzzle:
    """Build the puzzle of a seed; all values are equally likely."""
    random = rng(seed, "puzzle")

    def draw_facts(slots: Sequence[str]) -> tuple[str, ...]:
        return tuple(draw_fact(slot, random) for slot in random.sample(slots, len(slots)))

    facts_of_a, facts_of_b = draw_facts(SLOTS_OF_A), draw_facts(SLOTS_OF_B)
    first, second = random.sample((random.choice(SLOTS_OF_A), random.choice(SLOTS_OF_B)), 2)
    return Puzzle(facts_of_a=facts_of_a, facts_of_b=facts_of_b, question=(first, second))


def draw_fact(slot: str, random: Random) -> str:
    """Draw a fact about the slot, with any value."""
    return slot + random.choice(VALUES)


def find_fact(slot: str, facts: Iterable[str]) -> str:
    """Return the fact about a slot; `NONE` if there is none."""
    return next((fact for fact in facts if fact.startswith(slot)), NONE)


def format_facts(facts: Mapping[str, str]) -> str:
    """Write facts: `red redmo gold none`."""
    return " ".join(f"{slot} {fact}" for slot, fact in facts.items())


def parse_facts(text: str) -> dict[str, str]:
    """Parse a text in the form of `format_facts`: the word after every slot. The first mention of a slot counts."""
    facts: dict[str, str] = {}
    for slot, fact in pairwise(text.split()):
        if slot in SLOTS:
            facts.setdefault(slot, fact)
    return facts


def scramble(message: str, random: Random) -> str:
    """Return the message's form without its content: every slot of A is replaced by a random one, and every fact by one
    about that slot with a random value."""
    slot = random.choice(SLOTS_OF_A)
    facts = {of + value for of in SLOTS_OF_A for value in VALUES}
    words = message.split()
    return " ".join(
        draw_fact(slot, random) if word in facts else slot if word in SLOTS_OF_A else word for word in words
    )
