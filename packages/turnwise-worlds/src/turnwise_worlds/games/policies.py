"""Scripted players."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Any

from turnwise.core.types import Message, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.games.game import Game, read_moves
from turnwise_worlds.games.graph import build_graph
from turnwise_worlds.games.negotiation import ACCEPT, DIVISIONS, REFUSE, NegotiationState, divide
from turnwise_worlds.games.solve import solve
from turnwise_worlds.games.values import Choice


class UniformPlayer:
    """Makes any legal move."""

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        return answer_message(rng.choice(read_moves(messages[-1].text)))


class PerfectPlayer:
    """Plays a zero-sum game perfectly, or nearly so (`solve`)."""

    def __init__(self, game: Game[Any]) -> None:
        self._game = game

    @cached_property
    def choices(self) -> Mapping[str, tuple[tuple[str, ...], Choice]]:
        """Moves and their probabilities at every information set; solving the game takes seconds."""
        places = build_graph(self._game).information_sets
        return {place.text: (place.moves, choice) for place, choice in zip(places, solve(self._game), strict=True)}

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        moves, choice = self.choices[messages[-1].text]
        return answer_message(rng.choices(moves, choice)[0])


class FairPlayer:
    """Negotiates with knowledge of both players' values: offers the division with the largest Nash product, and accepts
    no other as long as it can still make an offer."""

    def __init__(self, deals: Sequence[NegotiationState]) -> None:
        self._deals = deals

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        state, moves = self._deals[int(task.payload["deal"])], read_moves(messages[-1].text)
        said = messages[-1].text.rpartition(" moves ")[0].partition(" said")[2].split()
        player = len(said) % 2
        best = max(DIVISIONS, key=lambda offer: self._rate(state, offer, player))
        if said and self._rate(state, said[-1], 1 - player) == self._rate(state, best, player):
            return answer_message(ACCEPT)
        return answer_message(REFUSE if REFUSE in moves else best)

    def _rate(self, state: NegotiationState, offer: str, proposer: int) -> tuple[float, float]:
        """Rate a division by its Nash product, then by the sum: if both value only one and the same item, a sum above 0
        is best."""
        returns = divide(state, offer, proposer=proposer)
        return returns[0] * returns[1], returns[0] + returns[1]
