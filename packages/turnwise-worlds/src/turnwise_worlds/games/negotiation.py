"""A negotiation over three items with alternating offers and private values; it is not zero-sum.

Each player values every item with a whole number; a player's values add up to `TOTAL`. A player offers a division by
naming the items to keep, or accepts the other's last offer. After `MAX_MOVES` moves without acceptance nobody gets
anything. The best division for both is found by trying all divisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from turnwise_worlds.games.game import Returns

ITEMS = ("book", "hat", "ball")
NUMBERS = ("nil", "one", "two", "three", "four")
"""Possible values of an item; an item with its value is one word, "hattwo"."""
TOTAL, MAX_MOVES = 4, 4
ACCEPT, REFUSE = "accept", "refuse"
DIVISIONS = {
    "keep" + "".join(item for item, kept in zip(ITEMS, kept, strict=True) if kept): kept
    for kept in product((False, True), repeat=len(ITEMS))
}
"""The items that the offering player keeps; the other player gets the rest."""

Values = tuple[int, ...]
"""A player's value of each item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NegotiationState:
    """The values of both players, and the moves so far."""

    values: tuple[Values, Values]
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Negotiation:
    """Implements `Game`."""

    name: str = "negotiation"
    max_moves: int = MAX_MOVES
    zero_sum: bool = False
    lowest: float = 0.0
    holds_out: bool = True

    def deals(self) -> Sequence[NegotiationState]:
        """Return every pair of values that add up to `TOTAL` each."""
        values = [each for each in product(range(TOTAL + 1), repeat=len(ITEMS)) if sum(each) == TOTAL]
        return [NegotiationState(values=(mine, theirs)) for mine, theirs in product(values, values)]

    def mover(self, state: NegotiationState) -> int | None:
        """Return who moves: the players alternate until one accepts, or the last one refuses."""
        return None if state.said[-1:] in ((ACCEPT,), (REFUSE,)) else len(state.said) % 2

    def moves(self, state: NegotiationState) -> tuple[str, ...]:
        """Return the offers, and acceptance if there is an offer; the last move can only accept or refuse."""
        if len(state.said) == MAX_MOVES - 1:
            return ACCEPT, REFUSE
        return (*DIVISIONS, ACCEPT) if state.said else tuple(DIVISIONS)

    def play(self, state: NegotiationState, move: str) -> NegotiationState:
        """Return the state after a move."""
        return NegotiationState(values=state.values, said=(*state.said, move))

    def returns(self, state: NegotiationState) -> Returns:
        """Return the value of what each player gets, as a share of `TOTAL`."""
        if state.said[-1] == REFUSE:
            return 0.0, 0.0
        return divide(state, state.said[-2], proposer=(len(state.said) - 2) % 2)

    def describe(self, state: NegotiationState) -> str:
        """Describe the mover's values, each one word with its item, and the moves so far."""
        own = state.values[len(state.said) % 2]
        return " ".join([*(item + NUMBERS[value] for item, value in zip(ITEMS, own, strict=True)), "said", *state.said])


def divide(state: NegotiationState, offer: str, *, proposer: int) -> Returns:
    """Return the value of a division for players 0 and 1 if `proposer` keeps the items in the offer."""
    kept = DIVISIONS[offer]
    mine = sum(value for value, keeps in zip(state.values[proposer], kept, strict=True) if keeps) / TOTAL
    theirs = sum(value for value, keeps in zip(state.values[1 - proposer], kept, strict=True) if not keeps) / TOTAL
    return (mine, theirs) if proposer == 0 else (theirs, mine)


def list_divisions(state: NegotiationState) -> list[Returns]:
    """Return the returns of every division."""
    return [divide(state, offer, proposer=0) for offer in DIVISIONS]


def is_pareto_optimal(state: NegotiationState, returns: Returns) -> bool:
    """Return whether no division is better for one player without being worse for the other."""
    return not any(
        a >= returns[0] and b >= returns[1] and (a > returns[0] or b > returns[1]) for a, b in list_divisions(state)
    )


def compute_nash_share(state: NegotiationState, returns: Returns) -> float:
    """Return the product of both returns as a share of the largest product of any division (Nash 1950, no deal worth
    0).

    Some division always has a product above 0, because every player values something, unless both value only the same
    single item: then the share is 1 for any Pareto-optimal division, else 0.
    """
    best = max(a * b for a, b in list_divisions(state))
    if best == 0.0:
        return float(is_pareto_optimal(state, returns))
    return returns[0] * returns[1] / best
