"""The arguments of `crafter`."""

from __future__ import annotations

from pydantic import Field

from turnwise.environments.arguments import Seconds
from turnwise_adapters.crafter.view import Style
from turnwise_adapters.game_family import GameArguments

ACTIONS = (
    *("noop", "move_left", "move_right", "move_up", "move_down", "do", "sleep"),
    *("place_stone", "place_table", "place_furnace", "place_plant"),
    *("make_wood_pickaxe", "make_stone_pickaxe", "make_iron_pickaxe"),
    *("make_wood_sword", "make_stone_sword", "make_iron_sword"),
)
"""Crafter's actions."""
ACHIEVEMENTS = (
    *("collect_coal", "collect_diamond", "collect_drink", "collect_iron", "collect_sapling", "collect_stone"),
    *("collect_wood", "defeat_skeleton", "defeat_zombie", "eat_cow", "eat_plant", "make_iron_pickaxe"),
    *("make_iron_sword", "make_stone_pickaxe", "make_stone_sword", "make_wood_pickaxe", "make_wood_sword"),
    *("place_furnace", "place_plant", "place_stone", "place_table", "wake_up"),
)
"""Crafter's achievements."""


class CrafterArguments(GameArguments):
    """Which worlds, goals and views."""

    goals: dict[str, float] = Field(default_factory=dict)
    """Weights of achievements by name: a task asks for one of them and is won once it is unlocked. Empty: the player
    lives until `max_actions`, and wins with all 22."""
    within: int = Field(0, ge=0, le=10_000)
    """Only worlds are used in which the expert reaches the goal within this many actions; 0 uses all."""
    area: int = Field(64, ge=12, le=256)
    """Cells a side of the world. A world of 64 takes 0.65 s to make."""
    num_worlds: int = Field(0, ge=0)
    """Number of different worlds per split, which its tasks use in turn; 0 makes a new world for every task."""
    actions: list[str] = Field(default_factory=lambda: list(ACTIONS), min_length=1)
    """Available actions; with fewer, random play achieves more."""
    style: Style = "full"
    """Whether the view is told in sentences, or in a line of a few words per thing."""
    pictures: bool = False
    """Whether Crafter's picture is shown before the words, to models that see."""
    picture_size: int = Field(64, ge=9, le=1024)
    """Pixels a side of the picture."""
    max_actions: int = Field(100, ge=1, le=100_000)
    """As in `GameArguments`; Crafter's own limit is 10,000."""
    tool_timeout_s: Seconds = 300.0
    """Most seconds that one action, or making a world, may take; many episodes that open at once wait for theirs."""
