"""Applies the lines that an agent wrote to the functions that contain them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from turnwise_worlds.repair.programs import Code, Function, Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A written line."""

    name: str
    """Name of the function or test."""
    index: int
    code: Code


def apply_edits(function: Function, edits: Sequence[Edit]) -> Function:
    """Apply a function's edits; of two edits of a line the later one counts."""
    lines = list(function.lines)
    for edit in edits:
        if edit.name == function.name:
            lines[edit.index] = replace(lines[edit.index], code=edit.code)
    return replace(function, lines=tuple(lines))


def write_test(number: int, tested: str) -> Function:
    """Return the test of a function as a function that can be viewed and set: `t2` with the line `check bal`."""
    line = Line(depth=0, code=("check", tested), intent=f"check {tested}")
    return Function(name=f"t{number}", parameters=(), lines=(line,))
