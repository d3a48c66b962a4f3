"""Calls of a service that expects letters in an undisclosed convention, and examples that reveal it. Pure functions.

A call sends three of eight letters. The service expects each of them shifted by the same offset: its convention. One
worked example, another letter with its shifted form, reveals it; it is one word (`ce`), because small models learn one
token per fact sooner than a relation of two. Held-out tasks use letters whose positions sum to a multiple of
`HELD_OUT`; no training task has such letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from turnwise.core.seeds import rng

LETTERS = "abcdefgh"
KEEP = "keep"
"""The convention that a first attempt assumes."""
OFFSETS: Mapping[str, int] = MappingProxyType({KEEP: 0, "next": 1, "skip": 2, "far": 4, "previous": 7})
"""By how many positions in the circle `LETTERS` each convention shifts a letter."""
SUSPECT = "next"
"""The convention blamed by policies that ignore the example."""
NUM_LETTERS = 3
HELD_OUT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The letters to be sent, and what the service expects."""

    letters: str
    convention: str
    example: str
    """A letter and its shifted form: `ce`."""

    @property
    def answer(self) -> str:
        """The letters as the service expects them."""
        return convert(self.letters, self.convention)


def build_call(seed: int, *, held_out: bool) -> Call:
    """Build the call of a seed: letters of the split, a convention and the example's letter, each drawn uniformly."""
    random = rng(seed, "call")
    letters = random.choices(LETTERS, k=NUM_LETTERS)
    while is_held_out("".join(letters)) != held_out:
        letters = random.choices(LETTERS, k=NUM_LETTERS)
    convention, shown = random.choice(list(OFFSETS)), random.choice(LETTERS)
    return Call(letters="".join(letters), convention=convention, example=shown + convert(shown, convention))


def is_held_out(letters: str) -> bool:
    """Return whether no training task has these letters."""
    return sum(LETTERS.index(letter) for letter in letters) % HELD_OUT == 0


def convert(letters: str, convention: str) -> str:
    """Convert letters to a convention, unchanged if its name is unknown; other characters are dropped."""
    moved = OFFSETS.get(convention, 0)
    return "".join(LETTERS[(LETTERS.index(letter) + moved) % len(LETTERS)] for letter in letters if letter in LETTERS)


def infer_convention(example: str) -> str | None:
    """Return the convention that an example such as `ce` reveals; None if it reveals none."""
    return next((name for name in OFFSETS if example[1:] == convert(example[:1], name) != ""), None)


def spell(letters: str) -> str:
    """Spell letters as words: `c h a`."""
    return " ".join(letters)
