"""The games by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from turnwise_worlds.games.game import Game
from turnwise_worlds.games.kuhn import Kuhn
from turnwise_worlds.games.leduc import Leduc
from turnwise_worlds.games.negotiation import Negotiation
from turnwise_worlds.games.nim import Nim
from turnwise_worlds.games.tictactoe import TicTacToe

GameName = Literal["kuhn", "leduc", "tictactoe", "nim", "negotiation"]

GAMES: Mapping[GameName, Game[Any]] = {
    "kuhn": Kuhn(),
    "leduc": Leduc(),
    "tictactoe": TicTacToe(),
    "nim": Nim(),
    "negotiation": Negotiation(),
}
