"""What carries out moves on a table. A body never changes: each move gives another one, so a fork is a reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from turnwise_worlds.push.table import Table

Move = tuple[Fraction, Fraction]
"""Cells along x and y."""


class Body(Protocol):
    """A table between two actions, as some dynamics have it."""

    @property
    def table(self) -> Table:
        """What is where, in whole cells."""
        ...

    def act(self, move: Move) -> Body:
        """Return the body after a move, first along x, then along y. Raises EnvironmentFault if the dynamics fail."""
        ...

    def describe_state(self) -> str:
        """Return a text that is equal exactly for equal states of one task."""
        ...


@dataclass(frozen=True, slots=True)
class CellBody:
    """Exact dynamics in whole cells: a move is rounded to them, half a cell away from 0."""

    table: Table

    def act(self, move: Move) -> CellBody:
        """See `Body`."""
        return CellBody(self.table.move(*map(round_away, move)))

    def describe_state(self) -> str:
        """See `Body`."""
        return f"{self.table.hand} {self.table.block}"


def round_away(cells: Fraction) -> int:
    """Return the nearest whole number; of two, the one farther from 0."""
    return math.floor(abs(cells) + Fraction(1, 2)) * (-1 if cells < 0 else 1)
