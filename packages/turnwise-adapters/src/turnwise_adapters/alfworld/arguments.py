"""The arguments of `alfworld`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import Seconds
from turnwise_adapters.alfworld.houses import KINDS, Kind
from turnwise_adapters.game_family import GameArguments
from turnwise_adapters.text_game import ReplyKind


class AlfworldArguments(GameArguments):
    """Which games."""

    kinds: dict[Kind, float] = Field(default_factory=lambda: dict.fromkeys(KINDS, 1.0), min_length=1)
    """Weights of ALFWorld's kinds of tasks by name. Published games are drawn evenly among those of these kinds."""
    games: str = ""
    """Folder of ALFWorld's published games (`json_2.1.1`, with `train` and the held-out folders of `game.tw-pddl`
    files). Empty generates a game for every seed."""
    heldout: Literal["valid_seen", "valid_unseen"] = "valid_unseen"
    """Which folder of `games` is held out."""
    copies: int = Field(3, ge=1, le=20)
    """How many cabinets, drawers and shelves a generated room has of each."""
    num_things: int = Field(12, ge=2, le=100)
    """Least number of things in a generated room."""
    reply: ReplyKind = "text"
    """As in `GameArguments`."""
    show_actions: Literal["never", "once", "always"] = "never"
    """As in `GameArguments`. Where they are listed only these are legal; otherwise any text is, and ALFWorld answers
    what it does not know with "Nothing happens."."""
    max_actions: int = Field(50, ge=1, le=100_000)
    """As in `GameArguments`; ALFWorld's own limit is 50."""
    tool_timeout_s: Seconds = 120.0
    """Most seconds that one action, or making a game, may take; games are made one after the other."""
