"""Locates a bug: the lines that the gold patch changes, and the functions that contain them."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from turnwise_swe.repositories.diffs import parse_diff
from turnwise_swe.repositories.instance import Instance
from turnwise_swe.repositories.source_lines import split_source

CONTEXT = 4
"""Number of lines above a change that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Lines of a file that replace others."""

    path: str
    first: int
    """The first line to remove, from 1."""
    last: int
    """The last line to remove; `first - 1` if none is removed."""
    text: str
    old: str
    """The removed text; "" if nothing is removed."""
    lines: tuple[Change, ...] = ()
    """Every line of the hunk unchanged, each written in its own place: changes without effect."""


def read_changes(patch: str) -> list[Change] | None:
    """Read the changed lines of a unified diff, the last ones of each file first, so that each still fits after the
    previous ones; None if the diff creates or removes files."""
    changes = []
    for file in parse_diff(patch):
        if file.old_path is None or file.old_path != file.new_path:
            return None
        for hunk in reversed(file.hunks):
            old, new = hunk.side("-"), hunk.side("+")
            head = tail = 0
            while head < min(len(old), len(new)) and old[head] == new[head]:
                head += 1
            while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
                tail += 1
            first = hunk.old_start + head
            text = "".join(new[head : len(new) - tail])
            last = hunk.old_start + len(old) - tail - 1
            same_lines = tuple(
                Change(path=file.old_path, first=number, last=number, text=line, old=line)
                for number, line in enumerate(old, hunk.old_start)
            )
            gone = "".join(old[head : len(old) - tail])
            changes.append(Change(path=file.old_path, first=first, last=last, text=text, old=gone, lines=same_lines))
    return changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A range of lines in a file."""

    path: str
    first: int
    """The first line, from 1."""
    lines: tuple[str, ...]

    def show(self) -> str:
        """Return the path and the numbered lines as the tool `view` shows them."""
        return "\n".join([self.path, *(f"{number} {line}" for number, line in enumerate(self.lines, self.first))])


def find_places(instance: Instance, bug: Mapping[str, bytes | None]) -> tuple[Place, ...]:
    """Return the innermost functions that the gold patch changes, with the bug, each once; for changes outside of
    functions or in files that are not Python, the surrounding lines. Empty for a patch that creates or removes
    files."""
    places: dict[tuple[str, int], Place] = {}
    for change in read_changes(instance.gold) or ():
        text = (bug[change.path] or b"").decode("utf-8", "replace")
        first, last = _find_lines(text, change)
        lines = tuple(split_source(text)[first - 1 : last])
        places[change.path, first] = Place(path=change.path, first=first, lines=lines)
    return tuple(places.values())


def _find_lines(text: str, change: Change) -> tuple[int, int]:
    tree = ast.Module(body=[], type_ignores=[])
    with contextlib.suppress(SyntaxError, ValueError):
        tree = ast.parse(text)
    holding = [
        (min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    holding = [(first, last) for first, last in holding if first <= change.first and change.last <= last]
    around = (max(1, change.first - CONTEXT), max(change.first, change.last) + CONTEXT)
    return min(holding, key=lambda lines: lines[1] - lines[0], default=around)
