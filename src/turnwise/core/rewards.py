"""Rewards of whole groups: what `[rewards.NAME]` of a recipe computes when all attempts at a task are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Invalid, TrajectoryGroup


class GroupReward(Protocol):
    """Rewards the attempts at one task, each by itself or relative to the others."""

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return one value per trajectory of the group, in order.

        The group has one role. An Invalid value makes the trajectory's reward Invalid; the value of a trajectory whose
        reward is Invalid already is not read. What judges are asked is stored with the group. May raise: the group is
        then Invalid.
        """
        ...
