"""Sums in a small base, with answers that can be learned by heart or worked out step by step. Pure functions.

There are few training problems, the same throughout training, so that a first answer can be known by heart. A fresh
problem must be worked out; exactly every `HELD_OUT`-th of all problems is one. The remaining problems serve as
practice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnwise.core.seeds import rng

BASE = 6
NUM_DIGITS = 4
HELD_OUT = 4

Digits = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """All problems, each in one of three lists, shuffled."""

    training: tuple[Digits, ...]
    practice: tuple[Digits, ...]
    fresh: tuple[Digits, ...]


def split_problems(seed: int, num_training: int) -> Problems:
    """Split the problems by a seed."""
    numbers = list(range(BASE**NUM_DIGITS))
    rng(seed, "revise", "problems").shuffle(numbers)
    fresh = [number for number in numbers if number % HELD_OUT == 0]
    others = [number for number in numbers if number % HELD_OUT]
    return Problems(
        training=tuple(map(_digits, others[:num_training])),
        practice=tuple(map(_digits, others[num_training:])),
        fresh=tuple(map(_digits, fresh)),
    )


def find_answer(digits: Iterable[int]) -> int:
    """Return the last digit of the sum."""
    return sum(digits) % BASE


def write_work(digits: Sequence[int], slips: Iterable[int] = ()) -> str:
    """Write the sum step by step: `3 + 1 = 4 + 4 = 2`. `slips` are added to the results, in their order."""
    total, words, wrong = digits[0], [str(digits[0])], iter(slips)
    for digit in digits[1:]:
        total = (total + digit + next(wrong, 0)) % BASE
        words += ["+", str(digit), "=", str(total)]
    return " ".join(words)


def _digits(number: int) -> Digits:
    return tuple(number // BASE**place % BASE for place in range(NUM_DIGITS))
