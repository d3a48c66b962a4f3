"""Draws tables of each kind that can be solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from turnwise_worlds.push.routes import find_route
from turnwise_worlds.push.table import Cell, Kind, Table

WALL = 3
"""Cells of a wall."""


def draw_table(kind: Kind, side: int, random: Random) -> Table:
    """Draw a table that can be solved and is not: its wall, if it has one, makes the way longer."""
    while True:
        table = _draw(kind, side, random)
        bare = replace(table, wall=())
        short = None if table.is_solved else find_route(bare)
        if short is None:
            continue
        if not table.wall:
            return table
        if not _is_open(table, short):
            route = find_route(table)
            if route is not None and len(route) > len(short):
                return table


def _is_open(table: Table, route: Sequence[Cell]) -> bool:
    """Whether a route of the table without its wall can be gone with it: then the wall makes nothing longer."""
    for step in route:
        after = table.step(*step)
        if after is table:
            return False
        table = after
    return True


def _draw(kind: Kind, side: int, random: Random) -> Table:
    wall = _draw_wall(side, random) if kind == "around" else ()
    cells = [(x, y) for x in range(side) for y in range(side) if (x, y) not in wall]
    if kind == "reach":
        hand, goal = random.sample(cells, 2)
        return Table(side=side, hand=hand, goal=goal)
    # A block at the table's edge can never leave it again.
    inner = [(x, y) for x, y in cells if 0 < x < side - 1 and 0 < y < side - 1]
    block = random.choice(inner)
    hand, goal = random.sample([cell for cell in cells if cell != block], 2)
    return Table(side=side, hand=hand, goal=goal, block=block, wall=wall)


def _draw_wall(side: int, random: Random) -> tuple[Cell, ...]:
    start, across = random.randrange(side - WALL + 1), random.randrange(1, side - 1)
    cells = [(start + number, across) for number in range(WALL)]
    return tuple(cells) if random.random() < 0.5 else tuple((y, x) for x, y in cells)
