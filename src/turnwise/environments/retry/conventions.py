"""Calls of a service that wants its digits in a convention it does not tell, and what shows which. Pure functions.

The service is to be sent three digits. It takes each of them moved by an offset, the same for all: its convention. One
worked example, another digit and what becomes of it, shows which. Digits whose sum is a multiple of `HELD_OUT` are
those of held-out tasks; no training task has such digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from turnwise.core.seeds import rng

KEEP = "keep"
"""The convention that a first attempt assumes."""
OFFSETS: Mapping[str, int] = MappingProxyType({KEEP: 0, "next": 1, "skip": 2, "far": 5, "back": 8, "previous": 9})
"""What every convention adds to a digit, modulo 10."""
SUSPECT = "next"
"""The convention that is blamed where nobody looks at the example."""
NUM_DIGITS = 3
HELD_OUT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is to be sent, and what the service wants."""

    digits: tuple[int, ...]
    convention: str
    example: int
    """The digit of the worked example."""

    @property
    def answer(self) -> str:
        """The digits as the service wants them."""
        return convert(self.digits, self.convention)

    @property
    def shown(self) -> str:
        """The worked example: `4 gives 5`."""
        return f"{self.example} gives {convert([self.example], self.convention)}"


def build_call(seed: int, *, held_out: bool) -> Call:
    """The call of a seed: digits of the split, a convention and an example, each uniform."""
    random = rng(seed, "call")
    digits = [random.randrange(10) for _ in range(NUM_DIGITS)]
    while (sum(digits) % HELD_OUT == 0) != held_out:
        digits = [random.randrange(10) for _ in range(NUM_DIGITS)]
    return Call(digits=tuple(digits), convention=random.choice(list(OFFSETS)), example=random.randrange(10))


def convert(digits: Sequence[int], convention: str) -> str:
    """The digits in a convention (`4 8 3`), unchanged where there is none of that name."""
    return " ".join(str((digit + OFFSETS.get(convention, 0)) % 10) for digit in digits)


def infer_convention(digit: int, becomes: int) -> str | None:
    """The convention in which `digit` becomes `becomes`; None where there is none."""
    return next((name for name, offset in OFFSETS.items() if (digit + offset - becomes) % 10 == 0), None)
