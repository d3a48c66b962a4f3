"""Tic-tac-toe: three in a row wins. Perfect play leads to a draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise_worlds.games.game import Returns

Board = str
"""Nine cells row by row: "x" for player 0, "o" for player 1, "." for free."""
MARKS, CELLS = "xo", "abcdefghi"
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


@dataclass(frozen=True, slots=True)
class TicTacToe:
    """Implements `Game`. A state is a `Board`; cells are named a to i."""

    name: str = "tictactoe"
    max_moves: int = 9
    zero_sum: bool = True
    lowest: float = -1.0
    holds_out: bool = False

    def deals(self) -> Sequence[Board]:
        """Return the empty board."""
        return ["." * 9]

    def mover(self, state: Board) -> int | None:
        """Return who moves: the players alternate until somebody has a line or the board is full."""
        if any(self._has_line(state, mark) for mark in MARKS) or "." not in state:
            return None
        return (9 - state.count(".")) % 2

    def moves(self, state: Board) -> tuple[str, ...]:
        """Return the free cells."""
        return tuple(cell for cell, mark in zip(CELLS, state, strict=True) if mark == ".")

    def play(self, state: Board, move: str) -> Board:
        """Return the board with the mover's mark in the cell."""
        cell, mark = CELLS.index(move), MARKS[(9 - state.count(".")) % 2]
        return state[:cell] + mark + state[cell + 1 :]

    def returns(self, state: Board) -> Returns:
        """Return 1 for the player with a line, 0 for both if nobody has one."""
        won = float(self._has_line(state, "x")) - float(self._has_line(state, "o"))
        return won, -won

    def describe(self, state: Board) -> str:
        """Describe the cells row by row, with "-" for a free one."""
        return " ".join(state.replace(".", "-"))

    def _has_line(self, state: Board, mark: str) -> bool:
        return any(all(state[cell] == mark for cell in line) for line in LINES)
