"""The keyword arguments of the family `games`."""

from __future__ import annotations

from turnwise.environments.arguments import FamilyArguments
from turnwise.environments.games.games import GameName


class GamesArguments(FamilyArguments):
    """A game of two players, `player0` and `player1`.

    There are no tools, so what limits them is not read.
    """

    game: GameName = "kuhn"
    """Which game."""
