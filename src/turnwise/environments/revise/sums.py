"""Sums in a small base, with answers that can be learned by heart or worked out step by step. Pure functions.

There are few training problems, the same all through training, so that a first answer can be known without being
worked out; a fresh problem can only be worked out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnwise.core.seeds import rng

BASE = 6
NUM_DIGITS = 4

Digits = tuple[int, ...]


def draw_training_problems(seed: int, count: int) -> tuple[Digits, ...]:
    """`count` different problems of `BASE ** NUM_DIGITS`."""
    numbers = rng(seed, "revise", "problems").sample(range(BASE**NUM_DIGITS), count)
    return tuple(_digits(number) for number in numbers)


def draw_fresh_problem(seed: int, index: int, known: frozenset[Digits]) -> Digits:
    """A problem that is not among the `known` ones."""
    random = rng(seed, "revise", "fresh", index)
    while (digits := _digits(random.randrange(BASE**NUM_DIGITS))) in known:
        pass
    return digits


def find_answer(digits: Iterable[int]) -> int:
    """The last digit of the sum."""
    return sum(digits) % BASE


def write_work(digits: Sequence[int], slips: Iterable[int] = ()) -> str:
    """The sum step by step: `3 + 1 = 4 + 4 = 2`. `slips` are added to the results, in their order."""
    total, words, wrong = digits[0], [str(digits[0])], iter(slips)
    for digit in digits[1:]:
        total = (total + digit + next(wrong, 0)) % BASE
        words += ["+", str(digit), "=", str(total)]
    return " ".join(words)


def _digits(number: int) -> Digits:
    return tuple(number // BASE**place % BASE for place in range(NUM_DIGITS))
