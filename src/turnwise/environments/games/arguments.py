"""The keyword arguments of the family `games`."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments
from turnwise.environments.games.games import GAMES, GameName


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

    @model_validator(mode="after")
    def _check_prosocial(self) -> Self:
        if self.prosocial and GAMES[self.game].zero_sum:
            raise ConfigError(
                f"environment.args.prosocial={self.prosocial} in {self.game}, where one player loses what the other "
                "wins: nothing would be left to learn from; use 0, or game='negotiation'"
            )
        return self
