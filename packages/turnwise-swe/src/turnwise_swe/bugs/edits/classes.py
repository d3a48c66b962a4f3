"""Kinds that edit a class as a whole. Classes exist before any test runs, so these edits are not screened by fork."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from turnwise_swe.bugs.edits.flow import shuffled
from turnwise_swe.bugs.edits.kind import Kind
from turnwise_swe.bugs.edits.source import Edit, Function, Replacement, Scope, Source
from turnwise_swe.bugs.edits.statements import removed


def remove_bases(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Remove a base from a class; `object` does not count."""
    assert isinstance(scope, ast.ClassDef)
    arguments: list[ast.expr | ast.keyword] = sorted([*scope.bases, *scope.keywords], key=source.start)
    for place, base in enumerate(arguments):
        if isinstance(base, ast.keyword) or (isinstance(base, ast.Name) and base.id == "object"):
            continue
        if len(arguments) == 1:  # including the parentheses
            opening = source.find_between(source.start(scope), source.start(base), rb"\([\s(]*\Z")
            closing = source.find_between(source.end(base), source.start(scope.body[0]), rb"[\s,)]*(?=:)")
            if opening is not None and closing is not None:
                yield (Replacement(start=opening[0], end=closing[1], text=b""),)
        elif place + 1 < len(arguments):
            yield (Replacement(start=source.start(base), end=source.start(arguments[place + 1]), text=b""),)
        else:
            yield (Replacement(start=source.end(arguments[place - 1]), end=source.end(base), text=b""),)


def remove_methods(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Remove a method from a class, and replace `self.method(...)` by None in the other methods."""
    assert isinstance(scope, ast.ClassDef)
    for method in _methods(scope):
        calls = [
            source.replace(node, b"None")
            for other in _methods(scope)
            if other is not method
            for node in ast.walk(other)
            if _calls_self(node, method.name)
        ]
        outermost = [
            call
            for call in calls
            if not any(other.start <= call.start < call.end <= other.end for other in calls if other is not call)
        ]
        if edit := removed(source, method, scope.body):
            yield (edit, *outermost)


def _methods(scope: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [item for item in scope.body if isinstance(item, Function)]


def _calls_self(node: ast.AST, method: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    )


def shuffle_methods(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Shuffle the methods of a class, which matters where one overrides or uses another."""
    assert isinstance(scope, ast.ClassDef)
    yield from shuffled(source, list(_methods(scope)), chance)


CLASS_RM_BASE = Kind(
    name="func_pm_class_rm_base",
    find=remove_bases,
    explanation="A class misses what it should inherit",
    in_class=True,
    likelihood=0.25,
    min_complexity=10,
    screened=False,
)
CLASS_RM_FUNCS = Kind(
    name="func_pm_class_rm_funcs",
    find=remove_methods,
    explanation="Methods of a class are missing",
    in_class=True,
    likelihood=0.15,
    min_complexity=10,
    screened=False,
)
CLASS_SHUFFLE_FUNCS = Kind(
    name="func_pm_class_shuffle_funcs",
    find=shuffle_methods,
    explanation="The methods of a class stand in wrong order",
    in_class=True,
    likelihood=0.25,
    min_complexity=10,
    screened=False,
)
