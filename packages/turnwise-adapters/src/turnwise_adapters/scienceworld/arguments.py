"""The arguments of `scienceworld`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.environments.arguments import Seconds
from turnwise_adapters.game_family import GameArguments
from turnwise_adapters.text_game import ReplyKind

SIMPLIFICATIONS = (
    *("easy", "teleportAction", "selfWateringFlowerPots", "openContainers", "openDoors", "noElectricalAction"),
)
"""ScienceWorld's simplifications; "easy" is all others but openContainers."""


class ScienceWorldArguments(GameArguments):
    """Which tasks."""

    tasks: dict[str, float] = Field(min_length=1)
    """Weights of ScienceWorld's tasks by name, such as {"find-non-living-thing": 1.0}."""
    simplifications: list[str] = Field(default_factory=lambda: ["easy"])
    """Any of "easy" (all others but openContainers), "teleportAction", "selfWateringFlowerPots", "openContainers",
    "openDoors", "noElectricalAction"."""
    heldout: Literal["dev", "test"] = "test"
    """Which of ScienceWorld's sets of variations is held out; training has its training set."""
    num_servers: int = Field(2, ge=1, le=256)
    """Most Java processes; each takes about 0.3 GB, and more episodes than processes take their actions again."""
    reply: ReplyKind = "text"
    """As in `GameArguments`."""
    show_actions: Literal["never", "once", "always"] = "never"
    """As in `GameArguments`. Where they are listed, which takes 0.1 to 0.4 s, only the hundreds of actions of
    ScienceWorld's list are legal; otherwise any text is, and ScienceWorld says what it does not understand."""
    max_actions: int = Field(100, ge=1, le=100_000)
    """As in `GameArguments`; ScienceWorld's own limit is 100."""
    tool_timeout_s: Seconds = 120.0
    """Most seconds that one action, starting Java, or the wait for a process may take."""
