"""Kinds that remove a statement, or change what a function returns."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator

from turnwise_swe.bugs.edits.kind import Finder, Kind
from turnwise_swe.bugs.edits.source import (
    Edit,
    Loop,
    Replacement,
    Scope,
    Source,
    Wrapper,
    blocks_of,
    first_line,
    is_docstring,
    own_nodes,
)


def removed(source: Source, statement: ast.stmt, block: list[ast.stmt]) -> Replacement | None:
    """The replacement that removes `statement` from `block`, with its lines, the comments directly above it, and blank
    lines that would end up at an end of the block or next to others. None if a `pass` would have to stay, which would
    give the place away: the statement is alone in its block, or shares its line."""
    start, end = source.line_starts[first_line(statement) - 1], source.end(statement)
    head = source.content[start : source.start(statement)]
    tail = re.compile(rb"[ \t]*(#[^\n]*)?(\r?\n|\Z)").match(source.content, end)
    indentation = re.match(rb"[ \t]*", head)[0]  # type: ignore[index]
    is_elif = isinstance(statement, ast.If) and source.content.startswith(b"elif", source.start(statement))
    if tail is None or (head != indentation and not head.lstrip().startswith(b"@")):
        return None
    if len(block) == 1 and not is_elif:
        return None
    above = re.search(rb"((?<=\n)%b#[^\n]*\n)+\Z" % re.escape(indentation), source.content[:start])
    if above is not None and not is_elif:
        start = above.start()
    stop = tail.end()
    before = re.search(rb"(?<=\n)([ \t]*\r?\n)+\Z", source.content[:start])
    after = re.compile(rb"([ \t]*\r?\n)+").match(source.content, stop)
    if before is not None and (after is not None or statement is block[-1]):
        start = before.start()
    elif after is not None and statement is block[0] is not block[-1]:
        stop = after.end()
    return Replacement(start=start, end=stop, text=b"")


def remover(*kinds: type[ast.stmt]) -> Finder:
    """The finder that removes statements of the given types."""

    def find(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
        for block in blocks_of(scope):
            for statement in block:
                if isinstance(statement, kinds) and (edit := removed(source, statement, block)):
                    yield (edit,)

    return find


_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Raise, ast.Delete, ast.Continue, ast.Break)


def remove_statements(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Remove a statement that is neither compound nor a return; never a docstring, a `pass` or a bare `yield`."""
    for block in blocks_of(scope):
        for statement in block:
            if not isinstance(statement, _SIMPLE) or is_docstring(statement) or _is_bare(statement):
                continue
            if edit := removed(source, statement, block):
                yield (edit,)


def _is_bare(statement: ast.stmt) -> bool:
    """Say whether the statement is a declaration without value, a constant (`...`), or a yield, which makes the
    generator."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def return_none(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Replace `return value` by `return None`."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Return) and node.value is not None:
            if isinstance(node.value, ast.Constant) and node.value.value is None:
                continue
            yield (source.replace(node, b"return None"),)


REMOVE_STATEMENT = Kind(name="remove_statement", find=remove_statements, explanation="A step is missing")
RETURN_NONE = Kind(name="return_none", find=return_none, explanation="A result is not returned")
REMOVE_ASSIGN = Kind(
    name="func_pm_remove_assign",
    find=remover(ast.Assign, ast.AugAssign),
    explanation="Values that are needed are not set",
    likelihood=0.25,
    min_complexity=3,
)
REMOVE_COND = Kind(
    name="func_pm_remove_cond",
    find=remover(ast.If),
    explanation="A case is not treated",
    likelihood=0.25,
    min_complexity=3,
)
REMOVE_LOOP = Kind(
    name="func_pm_remove_loop",
    find=remover(*Loop.__args__),
    explanation="Repeated work is not done",
    likelihood=0.25,
    min_complexity=3,
)
REMOVE_WRAPPER = Kind(
    name="func_pm_remove_wrapper",
    find=remover(*Wrapper.__args__),
    explanation="Work that was guarded by a context or a handler is missing",
    likelihood=0.25,
    min_complexity=3,
)
