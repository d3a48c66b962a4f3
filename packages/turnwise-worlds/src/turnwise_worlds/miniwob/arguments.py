"""The keyword arguments of the family `miniwob`."""

from __future__ import annotations

import os
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Seconds, Share
from turnwise_worlds.miniwob.drawn import DRAWN
from turnwise_worlds.miniwob.listing import Style
from turnwise_worlds.miniwob.tasks import expand

Surface = Literal["text", "picture", "both"]
Shown = Literal["own", "hidden"]


class MiniwobArguments(FamilyArguments):
    """Tasks of MiniWoB++ with real clicks on real pages."""

    tool_timeout_s: Seconds = 30.0
    """Most seconds that one tool call may take; the browser's own limits, five seconds an action, come before it."""
    tasks: list[str] = Field(default_factory=lambda: ["clicking", "forms"])
    """Names of tasks, such as "click-button", or of groups: "tiny", "names", "clicking", "forms". Each is as frequent
    as any other."""
    drawn_until: int = Field(0, ge=0)
    """Training tasks before this index are done on imitations that are drawn without a browser, for the tasks of the
    groups "tiny" and "names"; all others, and those that are held out, are real. The warm-up takes the first
    `sft.num_demonstrations` training tasks and RL those after them: with that number here, RL is on real pages only."""
    style: Style = "full"
    """How pages are written: "short", names and numbers for small models, or "full", one line per element."""
    surface: Surface = "text"
    """What the policy gets of the page: text, a picture of 160 x 210 pixels, or both. A picture is clicked at with
    `click_at`."""
    naive_skill: Share = 0.3
    """Probability with which a step of the naive policy is right."""
    max_pages: int = Field(default=os.cpu_count() or 1, ge=1, le=256)
    """Most pages that are open at the same time in this process; further episodes wait for one."""
    reuse_pages: bool = True
    """Whether an episode may start on a page on which an earlier one has ended, as in MiniWoB++ itself; else it gets a
    browser context of its own, which takes some ten times as long."""
    goal: Shown = "own"
    """What the task asks: "own", or the control "hidden"."""
    page: Shown = "own"
    """The page: "own", or the control "hidden", which shows no element."""

    @field_validator("tasks")
    @classmethod
    def _check_tasks(cls, tasks: list[str]) -> list[str]:
        if not tasks:
            raise ValueError("tasks=[] has no task; name one")
        expand(tasks)
        return tasks

    @model_validator(mode="after")
    def _check_drawn(self) -> Self:
        if self.drawn_until and (missing := set(expand(self.tasks)) - DRAWN):
            raise ConfigError(
                f"no page of {min(missing)} can be drawn; set tasks to ['tiny'], or leave drawn_until out"
            )
        if self.drawn_until and self.surface != "text":
            raise ConfigError(f"drawn pages have no pictures, and surface={self.surface!r}; set it to 'text'")
        return self
