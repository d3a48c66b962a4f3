"""Countdown's rules and its exact values. Pure functions.

A state consists of the remaining numbers and the target. An operation replaces two numbers by their sum, their product,
or the larger minus the smaller; no result may exceed a limit. The target is reached when it is the only number left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

Numbers = tuple[int, ...]
"""The remaining numbers, ascending."""
_MOVE = re.compile(r"(\d{1,3}) ([-+*]) (\d{1,3})")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Move:
    """One operation, with the smaller number first if the order does not matter."""

    first: int
    operation: str
    second: int

    @property
    def result(self) -> int:
        """The number that replaces the two."""
        if self.operation == "+":
            return self.first + self.second
        return self.first * self.second if self.operation == "*" else self.first - self.second

    def __str__(self) -> str:
        return f"{self.first} {self.operation} {self.second}"


def parse_move(text: str) -> Move | None:
    """Parse an operation such as "3 + 5"; None if the text is not one."""
    match = _MOVE.fullmatch(" ".join(text.split()))
    if match is None:
        return None
    first, second = int(match[1]), int(match[3])
    if match[2] != "-":
        first, second = min(first, second), max(first, second)
    return Move(first=first, operation=match[2], second=second)


def apply_move(left: Numbers, move: Move, limit: int) -> Numbers | None:
    """Return the numbers after an operation; None if one of its numbers is missing, or the result is negative or above
    the limit."""
    rest = list(left)
    for number in (move.first, move.second):
        if number not in rest:
            return None
        rest.remove(number)
    return tuple(sorted([*rest, move.result])) if 0 <= move.result <= limit else None


@lru_cache(maxsize=1 << 18)
def list_moves(left: Numbers, limit: int) -> tuple[Move, ...]:
    """Return every operation that the rules allow, ascending."""
    return tuple(sorted({move for move in _iterate_pairs(left) if apply_move(left, move, limit) is not None}))


def _iterate_pairs(left: Numbers) -> Iterator[Move]:
    for smaller, larger in combinations(left, 2):
        yield Move(first=smaller, operation="+", second=larger)
        yield Move(first=smaller, operation="*", second=larger)
        yield Move(first=larger, operation="-", second=smaller)


@lru_cache(maxsize=1 << 18)
def is_solvable(left: Numbers, target: int, limit: int) -> bool:
    """Return whether the target can be reached, the exact value of a state, by exhaustive search."""
    if len(left) == 1:
        return left[0] == target
    nexts = {apply_move(left, move, limit) for move in list_moves(left, limit)}
    return any(is_solvable(rest, target, limit) for rest in nexts if rest is not None)


def format_state(left: Numbers, target: int) -> str:
    """Write a state: `left 3 5 7 8 target 24`."""
    return f"left {' '.join(map(str, left))} target {target}"


def parse_state(text: str) -> tuple[Numbers, int]:
    """Read the state from a text that ends as `format_state` writes it."""
    before, _, target = text.rpartition(" target ")
    return tuple(map(int, before.rpartition("left ")[2].split())), int(target)
