"""The keyword arguments of the family `screens`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator

from turnwise.environments.arguments import FamilyArguments, Share, check_weights
from turnwise_worlds.screens.screen import COLOURS, Kind
from turnwise_worlds.screens.show import Surface

Prompt = Literal["short", "full"]
ShownSwitch = Literal["own", "empty", "other"]


class ScreensArguments(FamilyArguments):
    """Screens that are operated by clicks at the cells of a grid."""

    kinds: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(get_args(Kind), 1.0))
    """Share of each kind: "press" a button, fill a "form", find and click an item of a "list"."""
    surface: Surface = "picture"
    """What the policy gets of the screen: a picture, text, or both. The reward depends on the state alone."""
    prompt: Prompt = "short"
    """What is asked: a few words, for models that learn them from demonstrations, or an explanation."""
    target: str = ""
    """The colour that every task names, for models that learn what to click on but no words for colours; empty draws
    one for each task."""
    naive_skill: Share = 0.3
    """Probability with which the naive policy clicks on what the task names; else on another element of its role."""
    shown: ShownSwitch = "own"
    """The screen that is shown: "own", or a control: "empty", or that of the "other" task of another seed."""

    @field_validator("target")
    @classmethod
    def _check_target(cls, target: str) -> str:
        if target and target not in COLOURS:
            raise ValueError(
                f"target={target!r} is no colour of screens; use one of {', '.join(COLOURS)}, or leave it empty"
            )
        return target

    @field_validator("kinds", mode="before")
    @classmethod
    def _check_kinds(cls, kinds: object) -> dict[str, float]:
        return check_weights("kinds", kinds, get_args(Kind))
