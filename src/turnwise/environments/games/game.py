"""What a game of two players is: pure functions of a state. All chance is in the deal, which the state holds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

Returns = tuple[float, float]
"""What a finished game is worth to player 0 and to player 1."""


class Game(Protocol[S]):
    """The rules. A state is hashable and holds everything, what a player must not see included."""

    def __hash__(self) -> int:
        """Games with equal rules are equal."""
        ...

    @property
    def name(self) -> str:
        """One word."""
        ...

    @property
    def max_moves(self) -> int:
        """No game has more moves of both players together."""
        ...

    @property
    def zero_sum(self) -> bool:
        """Whether the returns of a finished game always add up to 0."""
        ...

    @property
    def lowest(self) -> float:
        """The worst return of a finished game, of either player."""
        ...

    @property
    def holds_out(self) -> bool:
        """Whether held-out tasks open with deals that training tasks never open with. False where play is only defined
        over all deals, as in poker."""
        ...

    def deals(self) -> Sequence[S]:
        """The states a game may open with, equally likely; one may stand there several times."""
        ...

    def mover(self, state: S) -> int | None:
        """Who moves, 0 or 1; None where the game is over."""
        ...

    def moves(self, state: S) -> tuple[str, ...]:
        """The legal moves, each one word, at least one where somebody moves."""
        ...

    def play(self, state: S, move: str) -> S:
        """The state after a legal move."""
        ...

    def returns(self, state: S) -> Returns:
        """What a finished game is worth."""
        ...

    def describe(self, state: S) -> str:
        """All that the mover knows: two states with the same text and the same mover are one information set."""
        ...


def write_prompt(game: Game[S], state: S) -> str:
    """What the mover reads: the game, who moves, what the mover knows, the legal moves."""
    words = [game.name, f"player{game.mover(state)}", game.describe(state), "moves", *game.moves(state)]
    return f" {' '.join(word for word in words if word)}"


def read_moves(prompt: str) -> tuple[str, ...]:
    """The legal moves of a prompt that `write_prompt` wrote."""
    return tuple(prompt.rpartition(" moves ")[2].split())


def forfeit(game: Game[S], player: int) -> Returns:
    """What a player gets who breaks the rules: the worst return that the game has, whatever the position, so that no
    legal move is ever worse. The other player gets what a zero-sum game leaves, and else the worst return too."""
    lost = game.lowest
    other = -lost if game.zero_sum else lost
    return (lost, other) if player == 0 else (other, lost)
