"""The shortest way to solve a table, in steps from cell to cell, and as actions."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache

from turnwise_worlds.push.table import Cell, Table

STEPS: tuple[Cell, ...] = ((1, 0), (-1, 0), (0, 1), (0, -1))
_TURN = 1
_STEP = 64
"""A step costs more than all turns of a way, which only decide between ways of equally many steps."""


@lru_cache(maxsize=4096)
def find_route(table: Table) -> tuple[Cell, ...] | None:
    """Return the steps of a shortest way, with as few turns as any of that length; None if there is none.

    A* over the cells of hand and block. What is left is at least the block's distance to the goal and the hand's to the
    block, less one: a step reduces their sum by at most one.
    """
    first = (table, (0, 0))
    queue: list[tuple[int, int, int, tuple[Table, Cell]]] = [(0, 0, 0, first)]
    came: dict[tuple[Table, Cell], tuple[tuple[Table, Cell], Cell] | None] = {first: None}
    cost = {first: 0}
    number = 0
    while queue:
        _, paid, _, node = heapq.heappop(queue)
        at, last = node
        if at.is_solved:
            return _trace(came, node)
        if paid > cost[node]:
            continue
        for step in STEPS:
            after = at.step(*step)
            if after is at:
                continue
            reached, total = (after, step), paid + _STEP + (_TURN if step != last else 0)
            if total < cost.get(reached, total + 1):
                cost[reached], came[reached] = total, (node, step)
                number += 1
                heapq.heappush(queue, (total + _STEP * _bound(after), total, number, reached))
    return None


def _bound(table: Table) -> int:
    if table.block is None:
        return table.distance
    gap = abs(table.hand[0] - table.block[0]) + abs(table.hand[1] - table.block[1]) - 1
    return table.distance + gap


def _trace(
    came: dict[tuple[Table, Cell], tuple[tuple[Table, Cell], Cell] | None], node: tuple[Table, Cell]
) -> tuple[Cell, ...]:
    steps = []
    while (before := came[node]) is not None:
        node, step = before
        steps.append(step)
    return tuple(reversed(steps))


def to_moves(steps: Sequence[Cell], reach: int) -> list[Cell]:
    """Join steps to moves of at most `reach` cells per axis: a move goes along x and then along y."""
    moves: list[Cell] = []
    at = 0
    while at < len(steps):
        counts = [0, 0]
        for axis in (0, 1):
            sign = steps[at][axis] if at < len(steps) else 0
            while sign and at < len(steps) and steps[at][axis] == sign and abs(counts[axis]) < reach:
                counts[axis] += sign
                at += 1
        moves.append((counts[0], counts[1]))
    return moves
