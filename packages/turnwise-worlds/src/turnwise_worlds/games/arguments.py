"""The keyword arguments of the family `games`."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments
from turnwise_worlds.games.games import GAMES, GameName


class GamesArguments(FamilyArguments):
    """A two-player game. The roles are `player0` and `player1`, or `agent` and `opponent`.

    There are no tools, so the limits of tools are not read.
    """

    game: GameName = "kuhn"
    """Name of the game."""
    opponent: bool = False
    """Whether the roles are `agent` and `opponent`, so that the opponent can be bound to the run's past or another
    policy while the agent learns both sides: it plays every deal once as each player."""
    prosocial: float = Field(0.0, ge=0, le=1)
    """Weight of the other player's return, added to the player's own in its reward (arXiv 1709.02865); only for games
    that are not zero-sum."""

    @model_validator(mode="after")
    def _check_prosocial(self) -> Self:
        if self.prosocial and GAMES[self.game].zero_sum:
            raise ConfigError(
                f"environment.args.prosocial={self.prosocial} in the zero-sum game {self.game}: nothing would be left "
                "to learn from; use 0, or game='negotiation'"
            )
        return self
