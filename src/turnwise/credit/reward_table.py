"""What `rewards.NAME.kind` names, and the reward built from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from turnwise.config.engine_kinds.kind import read_options
from turnwise.config.rewards import TASK, RewardSection
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.judging import EpisodeJudges
from turnwise.core.offers import find_row
from turnwise.core.rewards import GroupReward
from turnwise.core.threads import run_method
from turnwise.core.types import Invalid, Scored, TrajectoryGroup
from turnwise.credit.reward_kind import RewardKind, RewardParts

GROUP = "turnwise.rewards"
"""Entry-point group in which an installed package names its rewards."""


class TaskReward:
    """Implements `GroupReward`: the environment's own reward."""

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return the totals."""
        return [t.reward.total if isinstance(t.reward, Scored) else t.reward for t in group.trajectories]


class FunctionReward:
    """Implements `GroupReward` with a plain function of a group and the options, sync or `async`; one that takes
    `judges` may ask them."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self._function, self._options = function, options
        try:
            self._asks = "judges" in inspect.signature(function).parameters
        except (TypeError, ValueError):
            self._asks = False

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return what the function returns. Raises what it raises."""
        options = {**self._options, "judges": judges} if self._asks else self._options
        values: Sequence[float | Invalid] = await run_method(partial(self._function, **options), group)
        return values


TASK_REWARD = RewardKind(name=TASK, summary="the environment's own reward", build=lambda parts: TaskReward())
REWARDS: dict[str, RewardKind] = {TASK: TASK_REWARD}
"""Every built-in reward by name."""


def find_reward(name: str, section: RewardSection) -> RewardKind:
    """Return the row that `rewards.NAME.kind` names; a function becomes a row. Raises ConfigError, with the remedy, for
    one that leads nowhere or to something else."""

    def wrap(function: Callable[..., Any]) -> RewardKind:
        return RewardKind(name=section.kind, summary="", build=lambda parts: FunctionReward(function, parts.options))

    return find_row(f"rewards.{name}.kind", section.kind, RewardKind, group=GROUP, built_in=REWARDS, wrap=wrap)


def build_reward(section: RewardSection, kind: RewardKind, parts: RewardParts) -> GroupReward:
    """Build a reward. `parts.options` is the recipe's table. Raises ConfigError for an unknown option or a wrong
    value."""
    where = f"rewards.{parts.name}"
    if kind is TASK_REWARD and section.options:
        raise ConfigError(f"{where}.options: the environment's own reward has none; leave them out")
    if kind.options is not None:
        parts = replace(parts, options=read_options(kind.name, kind.options, parts.options, where=where))
    with boundary(ConfigError, f"{where}.kind={section.kind!r} cannot be built"):
        return kind.build(parts)
