"""The keyword arguments of the family `games`."""

from __future__ import annotations

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments
from turnwise.environments.games.games import GameName


class GamesArguments(FamilyArguments):
    """A game of two players. The roles are `player0` and `player1`, or `agent` and `opponent`.

    There are no tools, so what limits them is not read.
    """

    game: GameName = "kuhn"
    """Which game."""
    opponent: bool = False
    """Whether the roles are `agent` and `opponent`, so that the opponent may be bound to the past of the run or another
    policy and the agent learns both sides: it plays every deal once as either player."""
    prosocial: float = Field(0.0, ge=0, le=1)
    """Weight of the other player's return, which a player's reward adds to the player's own (arXiv 1709.02865); only
    where the sum of both is not zero."""
