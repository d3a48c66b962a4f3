"""The functions of generated problems: small Python expressions over a list of numbers `x`, made of named parts.

Pure: what a function gives is computed from tables, and no text is ever evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import Literal

from turnwise.core.protocols import Split

Kind = Literal["pick2", "pick3", "pipeline"]
Numbers = tuple[int, ...]
Value = int | list[int]

POSITIONS: Mapping[str, Callable[[Numbers], int]] = {
    "x[0]": lambda x: x[0],
    "x[1]": lambda x: x[1],
    "x[-1]": lambda x: x[-1],
}
RANKS: Mapping[str, Callable[[Numbers], int]] = {
    "min(x)": min,
    "sorted(x)[1]": lambda x: sorted(x)[1],
    "max(x)": max,
}
PICKS: Mapping[str, Callable[[Numbers], int]] = {**POSITIONS, **RANKS}
"""One number of a list of at least two. In a list of three distinct numbers every number has two readings: its position
and its rank."""

TESTS: Mapping[str, Callable[[int], bool]] = {
    "": lambda v: True,
    " if v % 2 == 0": lambda v: v % 2 == 0,
    " if v % 2": lambda v: v % 2 == 1,
    " if v > 3": lambda v: v > 3,
    " if v < 0": lambda v: v < 0,
}
MAPS: Mapping[str, Callable[[int], int]] = {
    "v": lambda v: v,
    "v + 2": lambda v: v + 2,
    "v * 2": lambda v: v * 2,
    "v * v": lambda v: v * v,
    "-v": lambda v: -v,
}
FOLDS: Mapping[str, tuple[str, Callable[[list[int]], Value]]] = {
    "list": ("list({})", list),
    "sum": ("sum({})", sum),
    "max": ("max(({}), default=0)", lambda values: max(values, default=0)),
    "count": ("len([{}])", len),
    "sorted": ("sorted({})", sorted),
}
"""By name: the expression around a generator, and what it computes. Each has a value for no numbers at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of one list of numbers."""

    kind: Kind
    parts: tuple[str, ...]
    """Names from `PICKS`; of a pipeline a name each from `FOLDS`, `MAPS` and `TESTS`."""

    @property
    def expression(self) -> str:
        """The Python expression."""
        if self.kind != "pipeline":
            return ", ".join(self.parts)
        fold, change, test = self.parts
        return FOLDS[fold][0].format(f"{change} for v in x{test}")

    def compute(self, x: Numbers) -> Value:
        """What the function gives; x has at least two numbers."""
        if self.kind != "pipeline":
            return [PICKS[part](x) for part in self.parts]
        fold, change, test = self.parts
        return FOLDS[fold][1]([MAPS[change](v) for v in x if TESTS[test](v)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All functions of a kind."""

    functions: tuple[Function, ...]
    split: Mapping[Function, Split]
    groups: tuple[tuple[Function, ...], ...]
    """Each is drawn equally often. Picks are grouped by which of their parts are positions, so that no guess about that
    is better than another."""
    num_readings: int
    """Functions that must agree on the first example."""


@cache
def space_of(kind: Kind) -> Space:
    """The functions of a kind. A combination of parts is held out if the sum of their indices, positions and ranks
    taken in turn, is a multiple of 3; every part and every pair of two places occurs in training but for `pick2`."""
    if kind == "pipeline":
        tables: tuple[Sequence[str], ...] = (tuple(FOLDS), tuple(MAPS), tuple(TESTS))
        combinations = [*product(*tables)]
    else:
        turns = [name for pair in zip(POSITIONS, RANKS, strict=True) for name in pair]
        tables = (turns,) * int(kind[-1])
        combinations = [*permutations(turns, int(kind[-1]))]
    split: dict[Function, Split] = {}
    groups: dict[tuple[bool, ...], list[Function]] = {}
    for parts in combinations:
        function = Function(kind=kind, parts=parts)
        total = sum(table.index(part) for table, part in zip(tables, parts, strict=True))
        split[function] = "train" if total % 3 else "heldout"
        groups.setdefault(tuple(part in POSITIONS for part in parts), []).append(function)
    return Space(
        functions=tuple(split),
        split=split,
        groups=tuple(tuple(group) for group in groups.values()),
        num_readings=2 if kind == "pipeline" else 2 ** int(kind[-1]),
    )


def readings(kind: Kind, examples: Sequence[tuple[Numbers, Value]]) -> list[Function]:
    """The functions of a kind that give the wanted value for every example."""
    return [f for f in space_of(kind).functions if all(f.compute(x) == value for x, value in examples)]
