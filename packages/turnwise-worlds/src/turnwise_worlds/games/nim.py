"""Nim: take any number of objects from one of three heaps; whoever takes the last one wins.

A position is lost for the mover exactly if the exclusive or of the heaps is 0 (Bouton 1901).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from turnwise_worlds.games.game import Returns

HEAPS, NUMBERS = "abc", ("nil", "one", "two", "three")
"""The names of the heaps, and the words for their sizes. A heap with its size is one word, "athree"."""
LARGEST = len(NUMBERS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NimState:
    """The objects in every heap, and who moves."""

    heaps: tuple[int, ...]
    mover: int = 0


@dataclass(frozen=True, slots=True)
class Nim:
    """Implements `Game`. The move "btwo" takes two objects from heap b."""

    name: str = "nim"
    max_moves: int = len(HEAPS) * LARGEST
    zero_sum: bool = True
    lowest: float = -1.0
    holds_out: bool = True

    def deals(self) -> Sequence[NimState]:
        """Return every position with objects in at least two heaps."""
        heaps = product(range(LARGEST + 1), repeat=len(HEAPS))
        return [NimState(heaps=sizes) for sizes in heaps if sum(size > 0 for size in sizes) > 1]

    def mover(self, state: NimState) -> int | None:
        """Return who moves: the players alternate until nothing is left."""
        return state.mover if any(state.heaps) else None

    def moves(self, state: NimState) -> tuple[str, ...]:
        """Return the moves: any number from 1 from any heap."""
        return tuple(
            name + NUMBERS[count] for name, size in zip(HEAPS, state.heaps, strict=True) for count in range(1, size + 1)
        )

    def play(self, state: NimState, move: str) -> NimState:
        """Return the position with these objects removed and the other player to move."""
        heap, count = HEAPS.index(move[0]), NUMBERS.index(move[1:])
        heaps = tuple(size - count if index == heap else size for index, size in enumerate(state.heaps))
        return NimState(heaps=heaps, mover=1 - state.mover)

    def returns(self, state: NimState) -> Returns:
        """Return 1 for the player who took the last object, who is not the next to move."""
        won = 1.0 if state.mover == 1 else -1.0
        return won, -won

    def describe(self, state: NimState) -> str:
        """Describe the heaps, each as one word."""
        return " ".join(name + NUMBERS[size] for name, size in zip(HEAPS, state.heaps, strict=True))
