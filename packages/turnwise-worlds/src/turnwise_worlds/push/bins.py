"""Actions as words: one bin per axis, a token each, as vision-language-action models write them.

    <x+2> <y-1> <x+0> <y+3>

is a chunk of two actions. OpenVLA (arXiv 2406.09246) cuts each axis into 256 bins of equal width; SimpleVLA-RL (arXiv
2509.09674) trains such tokens with RL. Deviation: here the outermost bins are centred at the longest move, not half a
bin inside, so that an odd number of bins has one that moves by exactly 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from turnwise.core.errors import DataError, ToolFailure

Action = tuple[int, int]
"""The bins of one action, along x and y. Bin 0 of an odd number of bins stays."""

_WORD = re.compile(r"<([xy])([+-]\d{1,3})>", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """The bins of one axis: `count` of them, from `-reach` to `reach` cells."""

    count: int
    reach: int

    @property
    def indices(self) -> range:
        """The bins: -4 to 4 if there are nine, -128 to 127 if there are 256."""
        return range(-(self.count // 2), (self.count + 1) // 2)

    def to_cells(self, index: int) -> Fraction:
        """Return the middle of a bin, in cells."""
        return Fraction(self.reach * (2 * index + 1 - self.count % 2), self.count - 1)

    def to_index(self, cells: float | Fraction) -> int:
        """Return the bin nearest to a move; the outer one of two equally near ones.

        Raises DataError for a move that is no number or longer than `reach`.
        """
        if not math.isfinite(cells) or abs(float(cells)) > self.reach:
            raise DataError(f"a move of {float(cells)!r} cells has no bin; use -{self.reach} to {self.reach}")
        exact = Fraction(cells)

        def measure(index: int) -> tuple[Fraction, Fraction]:
            middle = self.to_cells(index)
            return abs(middle - exact), -abs(middle)

        return min(self.indices, key=measure)


def write_word(axis: str, index: int) -> str:
    """Write the token of a bin: `<x+2>`."""
    return f"<{axis}{index:+d}>"


def write_chunk(actions: Sequence[Action]) -> str:
    """Write actions in a reply."""
    return " ".join(write_word(axis, index) for action in actions for axis, index in zip("xy", action, strict=True))


def read_chunk(text: str, bins: Bins, longest: int) -> tuple[Action, ...]:
    """Read a reply of 1 to `longest` actions, the inverse of `write_chunk`; spaces do not count.

    Raises ToolFailure, which says what is wrong: no action, a word that is no bin, half an action, too many actions.
    """
    read: list[tuple[str, int]] = []
    rest = text.strip()
    while rest:
        match = _WORD.match(rest)
        if match is None:
            raise ToolFailure(f"{rest.split()[0][:16]!r} is no action")
        axis, index = match[1], int(match[2])
        if index not in bins.indices or write_word(axis, index) != match[0]:
            raise ToolFailure(f"{match[0]} is no bin; use {bins.indices[0]} to {bins.indices[-1]:+d}")
        read.append((axis, index))
        rest = rest[match.end() :].lstrip()
    if not read:
        raise ToolFailure("no action")
    if [axis for axis, _ in read] != ["x", "y"] * (len(read) // 2):
        raise ToolFailure("an action is a bin of x and then one of y")
    if len(read) > 2 * longest:
        raise ToolFailure(f"{len(read) // 2} actions; a reply has at most {longest}")
    numbers = [index for _, index in read]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))
