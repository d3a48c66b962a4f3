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
from turnwise.core.seeds import rng

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
    " if v < 6": lambda v: v < 6,
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
    """The functions of a kind. A third of each group, drawn once for all, is held out: those combinations of parts occur
    in no training problem, while every part occurs there in every place."""
    if kind == "pipeline":
        combinations = [*product(FOLDS, MAPS, TESTS)]
    else:
        combinations = [*permutations(PICKS, int(kind[-1]))]
    groups: dict[tuple[bool, ...], list[Function]] = {}
    for parts in combinations:
        groups.setdefault(tuple(part in POSITIONS for part in parts), []).append(Function(kind=kind, parts=parts))
    split: dict[Function, Split] = {}
    for number, group in enumerate(groups.values()):
        order = rng("coding", kind, number).sample(group, len(group))
        split |= dict.fromkeys(order[: len(order) // 3], "heldout") | dict.fromkeys(order[len(order) // 3 :], "train")
    return Space(
        functions=tuple(split),
        split=split,
        groups=tuple(tuple(group) for group in groups.values()),
        num_readings=2 if kind == "pipeline" else 2 ** int(kind[-1]),
    )


def readings(kind: Kind, examples: Sequence[tuple[Numbers, Value]]) -> list[Function]:
    """The functions of a kind that give the wanted value for every example."""
    return [f for f in space_of(kind).functions if all(f.compute(x) == value for x, value in examples)]
