"""The table and what moves on it: exact dynamics in whole cells. Pure functions.

A table has `side * side` cells. A hand, a block, a wall's cells and a goal lie on it; each of the first three fills its
cells alone. The hand moves cell by cell, along x and then along y. It pushes the block before it; where neither can
move on, what is left of that axis' move is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["reach", "push", "around"]
Cell = tuple[int, int]
"""Column from the left and row from the bottom, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table between two actions."""

    side: int
    hand: Cell
    goal: Cell
    block: Cell | None = None
    """None where the hand itself has to reach the goal."""
    wall: tuple[Cell, ...] = ()
    """Neighbouring cells in a line, from the lower left."""

    @property
    def is_solved(self) -> bool:
        """Whether the block, or the hand where there is none, is at the goal."""
        return (self.hand if self.block is None else self.block) == self.goal

    @property
    def distance(self) -> int:
        """Cells between the goal and what has to reach it, along both axes, as if there were no wall."""
        moved = self.hand if self.block is None else self.block
        return abs(moved[0] - self.goal[0]) + abs(moved[1] - self.goal[1])

    def is_free(self, cell: Cell) -> bool:
        """Whether a cell is on the table and not of the wall."""
        return 0 <= cell[0] < self.side and 0 <= cell[1] < self.side and cell not in self.wall

    def step(self, dx: int, dy: int) -> Table:
        """Return the table after the hand moved to a neighbouring cell; itself if it cannot."""
        hand = (self.hand[0] + dx, self.hand[1] + dy)
        if not self.is_free(hand):
            return self
        if hand != self.block:
            return self._with(hand, self.block)
        block = (hand[0] + dx, hand[1] + dy)
        return self._with(hand, block) if self.is_free(block) else self

    def _with(self, hand: Cell, block: Cell | None) -> Table:
        """Return the table with hand and block elsewhere, sooner than `dataclasses.replace` does."""
        return Table(side=self.side, hand=hand, goal=self.goal, block=block, wall=self.wall)

    def move(self, right: int, up: int) -> Table:
        """Return the table after a move by whole cells, first along x, then along y."""
        table = self
        for number, axis in ((right, (1, 0)), (up, (0, 1))):
            sign = -1 if number < 0 else 1
            for _ in range(abs(number)):
                table = table.step(sign * axis[0], sign * axis[1])
        return table


def write_payload(kind: Kind, table: Table) -> dict[str, Any]:
    """Return a task's payload: the kind and the cells."""
    return {
        "kind": kind,
        "side": table.side,
        "hand": list(table.hand),
        "goal": list(table.goal),
        "block": None if table.block is None else list(table.block),
        "wall": [list(cell) for cell in table.wall],
    }


def read_payload(payload: Mapping[str, Any]) -> Table:
    """Return a task's table before any action, the inverse of `write_payload`."""

    def read(cell: Any) -> Cell:
        return int(cell[0]), int(cell[1])

    return Table(
        side=int(payload["side"]),
        hand=read(payload["hand"]),
        goal=read(payload["goal"]),
        block=None if payload["block"] is None else read(payload["block"]),
        wall=tuple(map(read, payload["wall"])),
    )
