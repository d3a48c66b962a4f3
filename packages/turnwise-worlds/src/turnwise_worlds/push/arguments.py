"""The keyword arguments of the family `push`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import FamilyArguments, Share, check_weights
from turnwise_worlds.push.table import Kind

Style = Literal["terse", "full"]
Surface = Literal["words", "picture"]
BodyName = Literal["cells", "mujoco"]
Camera = Literal["drawn", "egl"]
GoalSwitch = Literal["shown", "hidden"]
PictureSwitch = Literal["shown", "blank"]


class PushArguments(FamilyArguments):
    """A hand that reaches a goal or pushes a block there.

    There are no tools, so the limits of tools are not read.
    """

    kinds: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(get_args(Kind), 1.0))
    """Share of each kind: "reach" the goal with the hand, "push" the block there, push it "around" a wall."""
    side: int = Field(8, ge=5, le=16)
    """Cells a side of the table."""
    bins: int = Field(9, ge=9, le=256)
    """Bins of an axis: as many words for its moves."""
    reach: int = Field(4, ge=1, le=16)
    """Longest move along an axis, in cells: the middle of the outermost bins."""
    chunk: int = Field(2, ge=1, le=64)
    """Most actions of a reply; they are done one after the other, unseen in between."""
    horizon: int = Field(6, ge=1, le=1024)
    """Replies after which an episode ends."""
    body: BodyName = "cells"
    """What moves: exact dynamics in whole "cells", or the physics of "mujoco" (extra `bodies`). Words and actions are
    the same."""
    surface: Surface = "words"
    """What the policy gets of the table: words or a picture."""
    camera: Camera = "drawn"
    """Where pictures come from: "drawn" from the cells, or MuJoCo's "egl", which needs body="mujoco"."""
    style: Style = "terse"
    """The language: single words, for models that learn them from demonstrations, or sentences."""
    naive_skill: Share = 0.5
    """Probability with which a reply of the naive policy is right; else it moves straight on, whatever it pushes away,
    or anywhere."""
    goal: GoalSwitch = "shown"
    """Whether the goal is "shown" or, a control, "hidden"."""
    picture: PictureSwitch = "shown"
    """Whether pictures are "shown" or, a control, "blank"."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _check_kinds(cls, kinds: object) -> dict[str, float]:
        return check_weights("kinds", kinds, get_args(Kind))

    @model_validator(mode="after")
    def _check_switches(self) -> PushArguments:
        if self.camera == "egl" and (self.body, self.surface) != ("mujoco", "picture"):
            raise ConfigError(
                "camera='egl' has no effect here; set body='mujoco' and surface='picture', or leave it out"
            )
        if self.picture == "blank" and self.surface != "picture":
            raise ConfigError(
                "picture='blank' has no effect with surface='words'; set surface='picture' or leave it out"
            )
        return self
