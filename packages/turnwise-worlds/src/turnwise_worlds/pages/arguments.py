"""The keyword arguments of the family `pages`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator

from turnwise.environments.arguments import FamilyArguments, Share, check_weights
from turnwise_worlds.pages.page import Kind

Prompt = Literal["short", "full"]
OverviewSwitch = Literal["page", "grey"]
CropsSwitch = Literal["page", "grey", "shuffled"]


class PagesArguments(FamilyArguments):
    """Pages whose digits can only be read after zooming in."""

    kinds: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(get_args(Kind), 1.0))
    """Share of each kind: "read" the digit of the red cell, "compare" two red cells and give the larger digit, "nested"
    (zoom twice to read), "plain" (the overview shows the digit)."""
    prompt: Prompt = "short"
    """The first message: one word, for models that learn it from demonstrations, or an explanation."""
    call_cost: Share = 0.05
    """Share of the reward of a right answer that each zoom costs."""
    naive_skill: Share = 0.25
    """Probability with which the naive policy zooms at a red cell; else at a cell of another colour."""
    overview: OverviewSwitch = "page"
    """The first picture: "page", or the control "grey", which must make success a matter of chance."""
    crops: CropsSwitch = "page"
    """What zooming shows: "page", or a control: "grey" shows nothing, "shuffled" shows another page's crops."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _check_kinds(cls, kinds: object) -> dict[str, float]:
        return check_weights("kinds", kinds, get_args(Kind))
