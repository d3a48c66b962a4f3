"""Kuhn poker (Kuhn 1950): three cards, one each, one bet of 1 over an ante of 1.

Its value for player 0 is -1/18 under perfect play.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from turnwise_worlds.games.game import Returns

CARDS = "JQK"


@dataclass(frozen=True, slots=True, kw_only=True)
class KuhnState:
    """The cards of both players, and their actions so far."""

    cards: tuple[str, str]
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kuhn:
    """Implements `Game`."""

    name: str = "kuhn"
    max_moves: int = 3
    zero_sum: bool = True
    lowest: float = -2.0
    holds_out: bool = False

    def deals(self) -> Sequence[KuhnState]:
        """Return the six ways to deal two of three cards."""
        return [KuhnState(cards=(first, second)) for first, second in permutations(CARDS, 2)]

    def mover(self, state: KuhnState) -> int | None:
        """Return who moves: the players alternate until a fold, a call or two checks."""
        is_over = state.said[-1:] in (("fold",), ("call",)) or state.said == ("check", "check")
        return None if is_over else len(state.said) % 2

    def moves(self, state: KuhnState) -> tuple[str, ...]:
        """Return fold and call against a bet, otherwise check and bet."""
        return ("fold", "call") if state.said[-1:] == ("bet",) else ("check", "bet")

    def play(self, state: KuhnState, move: str) -> KuhnState:
        """Return the state after a move."""
        return KuhnState(cards=state.cards, said=(*state.said, move))

    def returns(self, state: KuhnState) -> Returns:
        """Return the ante, or after a call ante and bet, to the player with the higher card or who did not fold."""
        if state.said[-1] == "fold":
            won = 1.0 if len(state.said) % 2 == 0 else -1.0  # who acted last lost
        else:
            stake = 2.0 if state.said[-1] == "call" else 1.0
            won = stake if CARDS.index(state.cards[0]) > CARDS.index(state.cards[1]) else -stake
        return won, -won

    def describe(self, state: KuhnState) -> str:
        """Describe the mover's card and the actions so far."""
        return " ".join(["card", state.cards[len(state.said) % 2], "said", *state.said])
