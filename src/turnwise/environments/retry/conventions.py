"""Calls of a service that wants its letters in a convention it does not tell, and what shows which. Pure functions.

The service is to be sent three letters of eight. It takes each of them moved by an offset, the same for all: its
convention. One worked example, another letter with what becomes of it, shows which; it is one word (`ce`), since small
models learn one token per fact sooner than the relation of two. Letters the sum of whose places is a multiple of
`HELD_OUT` are those of held-out tasks; no training task has such letters.
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
"""By how many places of `LETTERS`, which is a circle, every convention moves a letter."""
SUSPECT = "next"
"""The convention that is blamed where nobody looks at the example."""
NUM_LETTERS = 3
HELD_OUT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is to be sent, and what the service wants."""

    letters: str
    convention: str
    example: str
    """A letter and what becomes of it: `ce`."""

    @property
    def answer(self) -> str:
        """The letters as the service wants them."""
        return convert(self.letters, self.convention)


def build_call(seed: int, *, held_out: bool) -> Call:
    """The call of a seed: letters of the split, a convention and the letter of the example, each uniform."""
    random = rng(seed, "call")
    letters = random.choices(LETTERS, k=NUM_LETTERS)
    while is_held_out("".join(letters)) != held_out:
        letters = random.choices(LETTERS, k=NUM_LETTERS)
    convention, shown = random.choice(list(OFFSETS)), random.choice(LETTERS)
    return Call(letters="".join(letters), convention=convention, example=shown + convert(shown, convention))


def is_held_out(letters: str) -> bool:
    """Whether no training task has these letters."""
    return sum(LETTERS.index(letter) for letter in letters) % HELD_OUT == 0


def convert(letters: str, convention: str) -> str:
    """The letters in a convention, unchanged where there is none of that name; other characters are left out."""
    moved = OFFSETS.get(convention, 0)
    return "".join(LETTERS[(LETTERS.index(letter) + moved) % len(LETTERS)] for letter in letters if letter in LETTERS)


def infer_convention(example: str) -> str | None:
    """The convention that `ce` shows; None where it shows none."""
    return next((name for name in OFFSETS if example[1:] == convert(example[:1], name) != ""), None)


def spell(letters: str) -> str:
    """`c h a`: every letter a word."""
    return " ".join(letters)
