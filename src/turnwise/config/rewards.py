"""What training is rewarded for besides, or instead of, the environment's reward: what `[rewards.NAME]` says."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section

TASK = "task"
"""The kind of the environment's own reward."""


class RewardSection(Section):
    """One term of the reward that trains, by the name of its table."""

    kind: str
    """"task": the environment's own reward. Any other reward: a name that an installed package offers, or the import
    path "package.module:NAME" of its row, or of a function of a group that returns a number per trajectory
    (docs/extending.md)."""
    weight: float = 1.0
    """Factor of its values."""
    cap: float | None = Field(None, gt=0)
    """Most that the term may add to a reward or take from it, after the weight. None has no limit."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Free table of the kind's options; it refuses what it does not know."""
