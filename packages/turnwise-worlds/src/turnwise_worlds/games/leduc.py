"""Leduc poker (Southey et al. 2005): six cards of three ranks, two rounds, a public card between them.

Each player antes 1; a raise is 2 in the first round and 4 in the second, at most two per round. A pair with the public
card wins, else the higher rank; equal ranks split. Suits never matter, so a card is its rank. The rules are OpenSpiel's
`leduc_poker`. Its value for player 0 is -0.0856 under perfect play.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from turnwise_worlds.games.game import Returns

RANKS = "JQK"
RAISES = (2.0, 4.0)
"""Size of a raise in each round."""
MAX_RAISES = 2
"""Most raises in each round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeducState:
    """The cards, including the public one even while it is hidden, and the actions of each round."""

    cards: tuple[str, str]
    public: str
    rounds: tuple[tuple[str, ...], ...] = ((),)


def is_closed(said: Sequence[str]) -> bool:
    """Return whether a round of betting is over: a fold, two checks, or a called raise."""
    return said[-1:] in (("fold",), ("call",)) or said == ("check", "check")


@dataclass(frozen=True, slots=True)
class Leduc:
    """Implements `Game`."""

    name: str = "leduc"
    max_moves: int = 8
    zero_sum: bool = True
    lowest: float = -13.0
    holds_out: bool = False

    def deals(self) -> Sequence[LeducState]:
        """Return the 120 ways to deal three of six cards."""
        return [LeducState(cards=(a, b), public=public) for a, b, public in permutations(RANKS * 2, 3)]

    def mover(self, state: LeducState) -> int | None:
        """Return who moves; player 0 opens both rounds."""
        said = state.rounds[-1]
        return None if is_closed(said) else len(said) % 2

    def moves(self, state: LeducState) -> tuple[str, ...]:
        """Return fold, call and, below the limit of raises, raise against a raise; otherwise check and raise."""
        said = state.rounds[-1]
        if said[-1:] != ("raise",):
            return ("check", "raise")
        return ("fold", "call", "raise") if said.count("raise") < MAX_RAISES else ("fold", "call")

    def play(self, state: LeducState, move: str) -> LeducState:
        """Return the state after a move; the public card is revealed when the first round closes without a fold."""
        *before, said = state.rounds
        rounds = (*before, (*said, move))
        if not before and is_closed(rounds[0]) and move != "fold":
            rounds = (*rounds, ())
        return LeducState(cards=state.cards, public=state.public, rounds=rounds)

    def returns(self, state: LeducState) -> Returns:
        """Return what the loser put in, to the winner."""
        said = state.rounds[-1]
        if said[-1] == "fold":
            loser = (len(said) - 1) % 2
            won = self._paid(state, loser)
            return (-won, won) if loser == 0 else (won, -won)
        ranks = [(card == state.public, RANKS.index(card)) for card in state.cards]
        won = self._paid(state, 0) * ((ranks[0] > ranks[1]) - (ranks[0] < ranks[1]))
        return won, -won

    def describe(self, state: LeducState) -> str:
        """Describe the mover's card, the actions so far, and the public card once it is revealed."""
        card = state.cards[len(state.rounds[-1]) % 2]
        words = ["card", card, "said", *state.rounds[0]]
        if len(state.rounds) == 2:
            words += ["public", state.public, "said", *state.rounds[1]]
        return " ".join(words)

    def _paid(self, state: LeducState, player: int) -> float:
        """Return what a player has put in: the ante, and in each round the raises that this player made or called."""
        paid = 1.0
        for size, said in zip(RAISES, state.rounds, strict=False):
            answered = 0.0
            height = 0.0
            for index, move in enumerate(said):
                height += size if move == "raise" else 0.0
                if index % 2 == player and move in ("raise", "call"):
                    answered = height
            paid += answered
        return paid
