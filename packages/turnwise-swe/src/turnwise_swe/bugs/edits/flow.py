"""Kinds that change the order in which statements run."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

from turnwise_swe.bugs.edits.kind import Kind
from turnwise_swe.bugs.edits.source import (
    Edit,
    Loop,
    Replacement,
    Scope,
    Source,
    body_of,
    complexity,
    own_nodes,
    statement_start,
)


def invert_ifs(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Swap the bodies of an `if` and its `else`. An `elif` has no `else` of its own."""
    for node in own_nodes(scope):
        if isinstance(node, ast.If) and node.orelse and not _is_elif(source, node):
            if len(node.orelse) == 1 and _is_elif(source, node.orelse[0]):
                continue
            first, second = block_span(source, node.body), block_span(source, node.orelse)
            yield (
                Replacement(start=first[0], end=first[1], text=source.content[slice(*second)]),
                Replacement(start=second[0], end=second[1], text=source.content[slice(*first)]),
            )


def _is_elif(source: Source, node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and source.content.startswith(b"elif", source.start(node))


def block_span(source: Source, block: list[ast.stmt]) -> tuple[int, int]:
    """The span from the first byte of the first statement, or of its first decorator, to the end of the last
    statement."""
    return statement_start(source, block[0]), source.end(block[-1])


def shuffle_statements(source: Source, scope: Scope, chance: random.Random) -> Iterator[Edit]:
    """Shuffle the top-level statements of a function with a loop. Simple functions only. A last `return` or `raise`
    stays the last, because dead code after it would give the place away."""
    if complexity(scope) <= 10 and any(isinstance(node, Loop) for node in own_nodes(scope)):
        body = body_of(scope)
        yield from shuffled(source, body[:-1] if isinstance(body[-1], ast.Return | ast.Raise) else body, chance)


def shuffled(source: Source, statements: list[ast.stmt], chance: random.Random) -> Iterator[Edit]:
    """One random order of the statements, each at its own indentation; empty if only one order is possible."""
    order = list(range(len(statements)))
    if len(order) < 2 or len({item.col_offset for item in statements}) != 1:
        return
    while order == sorted(order):
        chance.shuffle(order)
    spans = [(statement_start(source, item), source.end(item)) for item in statements]
    yield tuple(
        Replacement(start=spans[place][0], end=spans[place][1], text=source.content[slice(*spans[chosen])])
        for place, chosen in enumerate(order)
        if place != chosen
    )


CTRL_INVERT_IF = Kind(
    name="func_pm_ctrl_invert_if",
    find=invert_ifs,
    explanation="The two branches of a condition are exchanged",
    likelihood=0.25,
    min_complexity=5,
)
CTRL_SHUFFLE = Kind(
    name="func_pm_ctrl_shuffle",
    find=shuffle_statements,
    explanation="Steps happen in wrong order",
    likelihood=0.25,
    min_complexity=3,
)
