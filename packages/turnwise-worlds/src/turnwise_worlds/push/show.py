"""What the policy gets of a table: words or a picture of 32 x 32 pixels."""

from __future__ import annotations

import numpy as np

from turnwise.core.pictures import Pixels
from turnwise_worlds.push.arguments import Style
from turnwise_worlds.push.table import Cell, Kind, Table

PIXELS = 32
"""Pixels a side of a picture."""
GROUND = (150, 150, 150)
COLOURS = {"wall": (10, 10, 10), "goal": (40, 180, 60), "block": (220, 40, 40), "hand": (40, 60, 220)}
EDGE = (60, 60, 60)
"""What is beside the table."""
TASKS: dict[Kind, str] = {
    "reach": "Move the hand onto the goal.",
    "push": "Push the block onto the goal.",
    "around": "Push the block onto the goal, around the wall.",
}


def describe(table: Table, style: Style, *, hides_goal: bool) -> str:
    """Write what is where: ` hand x3 y5 block x2 y2 goal x6 y2`, or as a sentence."""
    if style == "terse":

        def name(cell: Cell) -> str:
            return f"x{cell[0]} y{cell[1]}"

        words = [f"wall {' '.join(map(name, table.wall))}"] if table.wall else []
        words.append(f"goal {'hidden' if hides_goal else name(table.goal)}")
        words += [f"block {name(table.block)}"] if table.block else []
        return f" {' '.join(words)} hand {name(table.hand)}"
    block = f", the block at {table.block}" if table.block else ""
    goal = "out of sight" if hides_goal else f"at {table.goal}"
    wall = f" A wall fills {', '.join(map(str, table.wall))}." if table.wall else ""
    return f"The hand is at {table.hand}{block}. The goal is {goal}.{wall}"


def draw(table: Table, *, hides_goal: bool) -> Pixels:
    """Draw a table, `[32, 32, 3]`, row 0 of the table at the bottom: each cell is a square of one colour, the goal
    under what covers it. The hand is smaller where a cell has four pixels or more, so that a goal shows around it."""
    size = PIXELS // table.side
    picture = np.empty((PIXELS, PIXELS, 3), np.uint8)
    picture[:] = EDGE
    picture[: size * table.side, : size * table.side] = GROUND
    things = [("wall", cell) for cell in table.wall]
    things += [] if hides_goal else [("goal", table.goal)]
    things += [("block", table.block)] if table.block else []
    for name, (x, y) in (*things, ("hand", table.hand)):
        inset = 1 if name == "hand" and size >= 4 else 0
        top, left = (table.side - 1 - y) * size, x * size
        picture[top + inset : top + size - inset, left + inset : left + size - inset] = COLOURS[name]
    return picture


def draw_blank() -> Pixels:
    """Draw nothing: a picture in the colour of an empty table. Not black, which SmolVLM takes for padding."""
    return np.full((PIXELS, PIXELS, 3), GROUND, np.uint8)
