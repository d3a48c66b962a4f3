"""The keyword arguments of mode "world"."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from turnwise.core.errors import ConfigError
from turnwise.environments.arguments import Share, check_unread
from turnwise_rewards.grounding.world.arguments import PagesArguments, Rule
from turnwise_synthesis.research.arguments import ResearchArguments


class WorldArguments(ResearchArguments, PagesArguments):
    """Research on generated pages."""

    mode: Literal["world"] = "world"
    """Generated pages, citations checked exactly."""
    style: Literal["full", "terse"] = "full"
    """"full": the agent has tools and decides the order; its context restarts from its notes when it is full. "terse":
    the environment asks for one note per fact, one section per subject and the answer, each in a context of its own;
    for small models."""
    rule: Rule | Literal["either"] = "later"
    """Which of two pages that disagree is right: "later", or "trusted", the one of the more reliable source; the other
    criterion decides where the first does not. "either": each world has one of the two, which its tasks name."""
    contradictions: Share = 0.3
    """Probability with which a second page says something else about a fact: one of the two is right, by `rule`."""
    min_sections: int = Field(3, ge=1, le=20)
    """Fewest subjects asked for, each a section of the report."""
    max_sections: int = Field(5, ge=1, le=20)
    """Most subjects asked for."""
    max_facts: int = Field(3, ge=1, le=3)
    """Most facts asked for of a subject."""
    citations: Literal["kept", "shuffled"] = "kept"
    """"kept", or a control that must fail: "shuffled" gives every citation of the report the id of another passage that
    was retrieved, before it is checked."""
    naive_care: Share = 0.2
    """Probability with which the naive policy cites the page that it has read a claim from, not the last one shown, and
    with which it names a contradiction."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_sections > self.max_sections:
            raise ConfigError(
                f"min_sections={self.min_sections} is above max_sections={self.max_sections}; lower it or raise the "
                "other"
            )
        if self.style == "terse":
            check_unread(self, ("show", "window_words", "max_contexts"), "terse")
        return self
