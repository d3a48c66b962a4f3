"""The keyword arguments of the family `house`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator

from turnwise.environments.arguments import FamilyArguments, Share, check_weights
from turnwise_worlds.house.generate import FEWEST_PLACES
from turnwise_worlds.house.styles import StyleName
from turnwise_worlds.house.world import Kind

Observations = Literal["own", "blank"]
Names = Literal["own", "shuffled"]


class HouseArguments(FamilyArguments):
    """Houses in which a thing is found, changed, and brought where it is wanted.

    There are no tools, so the limits of tools are not read.
    """

    kinds: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(get_args(Kind), 1.0))
    """Share of each kind of task: "put" a thing somewhere, look at it under a "light", put it there "clean", hot
    ("heat") or cold ("cool"), put "two" of them there."""
    style: StyleName = "full"
    """The words: "full", ALFWorld's commands and sentences, or "terse", for models that learn the words from
    demonstrations. State and reward depend on neither."""
    remind: bool = False
    """Whether the task is repeated after every outcome, as in prompts that show one outcome at a time."""
    places: int = Field(8, ge=FEWEST_PLACES, le=60)
    """Places in a house."""
    things: int = Field(6, ge=0, le=24)
    """Things in a house besides those that the task needs."""
    belongs: Share = 0.7
    """Probability with which a thing lies at the kind of place where it belongs."""
    max_steps: int = Field(30, ge=1, le=1000)
    """Replies after which an episode ends."""
    naive_skill: Share = 0.5
    """Probability with which the naive policy, which knows where everything is, acts on it; else it does
    anything that would change the house, mostly what is possible."""
    observations: Observations = "own"
    """What is said of an action's outcome: its "own", or a control: "blank"."""
    names: Names = "own"
    """Where `go` leads: to the place of its "own" name, or a control: names are "shuffled", so that it leads to
    another."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _check_kinds(cls, kinds: object) -> dict[str, float]:
        return check_weights("kinds", kinds, get_args(Kind))
