"""The keyword arguments of the family `devices`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator

from turnwise.environments.arguments import FamilyArguments, Share, check_weights
from turnwise_worlds.devices.goals import TASKS
from turnwise_worlds.devices.session import Kind

ScreenSwitch = Literal["shown", "blank"]


class DevicesArguments(FamilyArguments):
    """Tasks on a simulated phone or desktop.

    There are no tools, so the limits of tools are not read.
    """

    kinds: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(get_args(Kind), 1.0))
    """Share of each kind: a "phone" with AndroidWorld's actions, a "desktop" with OSWorld's."""
    tasks: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(TASKS, 1.0))
    """Share of each task, such as "add_contact"."""
    horizon: int = Field(30, ge=1, le=1024)
    """Replies after which an episode ends."""
    naive_skill: Share = 0.7
    """Probability with which a reply of the naive policy is right; else it taps anywhere."""
    screen: ScreenSwitch = "shown"
    """Whether the screen is "shown" or, a control, "blank"."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _check_kinds(cls, kinds: object) -> dict[str, float]:
        return check_weights("kinds", kinds, get_args(Kind))

    @field_validator("tasks", mode="before")
    @classmethod
    def _check_tasks(cls, tasks: object) -> dict[str, float]:
        return check_weights("tasks", tasks, list(TASKS))
