"""The interface of two-player games: pure functions of a state. All chance is in the deal, which the state contains."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

Returns = tuple[float, float]
"""The returns of a finished game for player 0 and player 1."""


class Game(Protocol[S]):
    """The rules. A state is hashable and contains everything, including what a player must not see."""

    def __hash__(self) -> int:
        """Return a hash; games with equal rules are equal."""
        ...

    @property
    def name(self) -> str:
        """The game's name, one word."""
        ...

    @property
    def max_moves(self) -> int:
        """Most moves of both players together."""
        ...

    @property
    def zero_sum(self) -> bool:
        """Whether the returns of a finished game always add up to 0."""
        ...

    @property
    def lowest(self) -> float:
        """The worst return of a finished game for either player."""
        ...

    @property
    def holds_out(self) -> bool:
        """Whether held-out tasks open with deals that training tasks never use. False if optimal play is only defined
        over all deals, as in poker."""
        ...

    def deals(self) -> Sequence[S]:
        """Return the states with which a game may open, equally likely; a state may be listed several times."""
        ...

    def mover(self, state: S) -> int | None:
        """Return who moves, 0 or 1; None if the game is over."""
        ...

    def moves(self, state: S) -> tuple[str, ...]:
        """Return the legal moves, each one word; at least one unless the game is over."""
        ...

    def play(self, state: S, move: str) -> S:
        """Return the state after a legal move."""
        ...

    def returns(self, state: S) -> Returns:
        """Return the returns of a finished game."""
        ...

    def describe(self, state: S) -> str:
        """Describe all that the mover knows: two states with the same text and the same mover are one information
        set."""
        ...


def write_prompt(game: Game[S], state: S) -> str:
    """Write what the mover reads: the game, who moves, what the mover knows, the legal moves."""
    words = [game.name, f"player{game.mover(state)}", game.describe(state), "moves", *game.moves(state)]
    return f" {' '.join(word for word in words if word)}"


def read_moves(prompt: str) -> tuple[str, ...]:
    """Return the legal moves in a prompt written by `write_prompt`."""
    return tuple(prompt.rpartition(" moves ")[2].split())


def forfeit(game: Game[S], player: int) -> Returns:
    """Return the returns when `player` breaks the rules: the game's worst return for that player, whatever the
    position, so that no legal move is ever worse. The other player gets the opposite in a zero-sum game, and otherwise
    the worst return too."""
    lost = game.lowest
    other = -lost if game.zero_sum else lost
    return (lost, other) if player == 0 else (other, lost)
