"""Kinds of edits that change what is passed, raised, caught or awaited."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from itertools import pairwise

from turnwise_swe.bugs.edits.expressions import number_edits
from turnwise_swe.bugs.edits.kind import Kind
from turnwise_swe.bugs.edits.source import Edit, Function, Scope, Source, own_nodes

_EXCEPTIONS = {
    "ValueError": b"TypeError",
    "TypeError": b"ValueError",
    "KeyError": b"IndexError",
    "IndexError": b"KeyError",
    "AttributeError": b"KeyError",
    "StopIteration": b"IndexError",
    "RuntimeError": b"ValueError",
    "NotImplementedError": b"AttributeError",
    "OSError": b"ValueError",
    "ImportError": b"OSError",
    "UnicodeDecodeError": b"UnicodeEncodeError",
    "ZeroDivisionError": b"OverflowError",
    "OverflowError": b"ZeroDivisionError",
    "AssertionError": b"TypeError",
    "LookupError": b"ValueError",
}
"""Built-in exceptions, each mapped to another that is neither the same nor catches it, except that UnicodeDecodeError
stays a ValueError."""


def swap_arguments(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Swap two neighbouring positional arguments of a call."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Call):
            for left, right in pairwise(node.args):
                if isinstance(left, ast.Starred) or isinstance(right, ast.Starred):
                    continue
                if source.text(left) != source.text(right):
                    yield (source.replace(left, source.text(right)), source.replace(right, source.text(left)))


def change_exceptions(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Replace a built-in exception that is raised or caught by another one."""
    for node in own_nodes(scope):
        named: list[ast.expr | None] = []
        if isinstance(node, ast.Raise):
            named = [node.exc.func if isinstance(node.exc, ast.Call) else node.exc]
        elif isinstance(node, ast.ExceptHandler):
            named = [*node.type.elts] if isinstance(node.type, ast.Tuple) else [node.type]
        for name in named:
            if isinstance(name, ast.Name) and name.id in _EXCEPTIONS:
                yield (source.replace(name, _EXCEPTIONS[name.id]),)


def change_defaults(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Change the default of a parameter: an integer by one, a flag to its opposite, a text or None to another."""
    assert isinstance(scope, Function)
    for default in (*scope.args.defaults, *scope.args.kw_defaults):
        if not isinstance(default, ast.Constant):
            continue
        if isinstance(default.value, bool):
            yield (source.replace(default, str(not default.value).encode()),)
        elif default.value is None:
            yield (source.replace(default, b"0"),)
        elif isinstance(default.value, str):
            yield (source.replace(default, b"None" if default.value else b'" "'),)
        else:
            yield from number_edits(source, default)


def drop_awaits(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Replace `await x` by `x`."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Await):
            start, end = source.start(node), source.end(node)
            keyword = source.find_between(start, end, rb"await\s*")
            assert keyword is not None
            yield (source.replace(node, source.content[keyword[1] : end]),)


SWAP_ARGUMENTS = Kind(
    name="swap_arguments", find=swap_arguments, explanation="The arguments of a call are in wrong order"
)
WRONG_EXCEPTION = Kind(
    name="wrong_exception", find=change_exceptions, explanation="An error of a wrong type is raised or caught"
)
WRONG_DEFAULT = Kind(
    name="wrong_default", find=change_defaults, explanation="The default of an argument is wrong", screened=False
)
MISSING_AWAIT = Kind(
    name="missing_await", find=drop_awaits, explanation="Asynchronous work is started but not waited for"
)
