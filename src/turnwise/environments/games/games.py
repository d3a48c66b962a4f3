"""The games by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from turnwise.environments.games.game import Game
from turnwise.environments.games.kuhn import Kuhn
from turnwise.environments.games.leduc import Leduc
from turnwise.environments.games.negotiation import Negotiation
from turnwise.environments.games.nim import Nim
from turnwise.environments.games.tictactoe import TicTacToe

GameName = Literal["kuhn", "leduc", "tictactoe", "nim", "negotiation"]

GAMES: Mapping[GameName, Game[Any]] = {
    "kuhn": Kuhn(),
    "leduc": Leduc(),
    "tictactoe": TicTacToe(),
    "nim": Nim(),
    "negotiation": Negotiation(),
}
