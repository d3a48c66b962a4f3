"""The functions of generated problems: small Python expressions composed of named parts.

Pure: results are computed from tables, and no text is ever evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal

from turnwise.core.protocols import Split

Kind = Literal["arithmetic", "pipeline"]
"""Three results from two numbers `x` and `y`, or a list of numbers `x` that is filtered, mapped and folded."""
Numbers = tuple[int, ...]
Value = int | list[int]
Example = tuple[Numbers, Value]
"""The input numbers and the function's result."""

OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y,
    "*": lambda x, y: x * y,
    "**": lambda x, y: int(x**y),
    "-": lambda x, y: x - y,
    "%": lambda x, y: x % y,
}
"""On 2 and 2 the first three yield 4 and the others 0. `y` is positive."""
FOLDS: Mapping[str, tuple[str, Callable[[list[int]], Value]]] = {
    "list": ("list({})", list),
    "sum": ("sum({})", sum),
    "max": ("max(({}), default=0)", lambda values: max(values, default=0)),
    "sorted": ("sorted({})", sorted),
}
"""By name: the expression around a generator, and what it computes. Each is defined for an empty list."""
MAPS: Mapping[str, Callable[[int], int]] = {
    "v": lambda v: v,
    "v + 2": lambda v: v + 2,
    "v * 2": lambda v: v * 2,
    "v * v": lambda v: v * v,
    "-v": lambda v: -v,
}
TESTS: Mapping[str, Callable[[int], bool]] = {
    "": lambda v: True,
    " if v % 2 == 0": lambda v: v % 2 == 0,
    " if v % 2": lambda v: v % 2 == 1,
    " if v > 3": lambda v: v > 3,
    " if v < 6": lambda v: v < 6,
}
_TABLES: Mapping[Kind, tuple[Sequence[str], ...]] = {
    "arithmetic": (tuple(OPERATORS),) * 3,
    "pipeline": (tuple(FOLDS), tuple(MAPS), tuple(TESTS)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of a few numbers."""

    kind: Kind
    parts: tuple[str, ...]
    """The operators of the results; for a pipeline one name each from `FOLDS`, `MAPS` and `TESTS`."""

    @property
    def expression(self) -> str:
        """The Python expression."""
        if self.kind == "arithmetic":
            return ", ".join(f"x {operator} y" for operator in self.parts)
        fold, change, test = self.parts
        return FOLDS[fold][0].format(f"{change} for v in x{test}")

    def compute(self, x: Numbers) -> Value:
        """Compute the function's result."""
        if self.kind == "arithmetic":
            return [OPERATORS[operator](*x) for operator in self.parts]
        fold, change, test = self.parts
        return FOLDS[fold][1]([MAPS[change](v) for v in x if TESTS[test](v)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All functions of a kind."""

    split: Mapping[Function, Split]
    groups: tuple[tuple[Function, ...], ...]
    """Groups are drawn equally often. The arithmetic functions of one group agree on 2 and 2."""

    @property
    def functions(self) -> tuple[Function, ...]:
        """All functions of all groups."""
        return tuple(self.split)


@cache
def space_of(kind: Kind) -> Space:
    """Return the functions of a kind. A third of them is held out: those whose parts' indices in their tables add up to
    one more than a multiple of 3. These combinations occur in no training problem, but every part occurs in every
    place.
    """
    groups: dict[str, list[Function]] = {}
    split: dict[Function, Split] = {}
    for parts in product(*_TABLES[kind]):
        function = Function(kind=kind, parts=parts)
        groups.setdefault(str(function.compute((2, 2))) if kind == "arithmetic" else "", []).append(function)
        total = sum(table.index(part) for table, part in zip(_TABLES[kind], parts, strict=True))
        split[function] = "heldout" if total % 3 == 1 else "train"
    return Space(split=split, groups=tuple(tuple(group) for group in groups.values()))


def readings(kind: Kind, examples: Sequence[Example]) -> list[Function]:
    """Return the functions of a kind that yield the wanted value for every example."""
    return [f for f in space_of(kind).functions if all(f.compute(x) == value for x, value in examples)]
