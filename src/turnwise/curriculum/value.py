"""Tasks are drawn again in proportion to VSPO's task value: over the whole run by the sampler `value`, within a step by
`rollout.dynamic_sampling.refill`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from turnwise.algorithms.vspo import compute_task_value, draw_refill
from turnwise.config.section import Section
from turnwise.core.errors import ConfigError, boundary
from turnwise.core.types import TrajectoryGroup
from turnwise.curriculum.choosing import choose_new, draw_weighted
from turnwise.curriculum.sampler import Choice, OfferedTasks, SamplerKind, TaskResult


class ValueOptions(Section):
    """Options of `value`."""

    new: float = Field(0.5, ge=0, le=1)
    """Share of draws that are tasks never drawn before."""
    max_reward: float = 1.0
    """The highest possible reward."""


class ValueSampler:
    """Implements `Sampler`."""

    def __init__(self, options: ValueOptions) -> None:
        self._options = options
        self._values: dict[int, float] = {}
        """The value of every task with signal, from its latest result."""

    def choose(self, offered: OfferedTasks, luck: Sequence[float]) -> Choice | None:
        """A new task, or one of those with signal in proportion to their value."""
        free = {task: value for task, value in sorted(self._values.items()) if offered.is_free(task)}
        again = draw_weighted(free, luck[1])
        if again is None or luck[0] < self._options.new:
            return choose_new(offered, luck[1])  # without new ones those drawn least, so that tasks of value 0 return
        return Choice(pool="valued", again=again)

    def observe(self, results: Sequence[TaskResult], step: int) -> None:
        """See `Sampler`. Raises ConfigError for a reward above `max_reward`."""
        for result in results:
            with boundary(ConfigError, "curriculum.options.max_reward"):
                value = compute_task_value(result.rewards, max_reward=self._options.max_reward)
            self._values.pop(result.task, None)
            if value > 0:
                self._values[result.task] = value

    def measure(self) -> Mapping[str, float]:
        """The number of tasks with signal."""
        return {"tasks_valued": len(self._values)}

    def state_dict(self) -> dict[str, Any]:
        """See `Sampler`."""
        return {"values": {str(task): value for task, value in self._values.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Sampler`."""
        self._values = {int(task): value for task, value in state["values"].items()}


VALUE = SamplerKind(
    name="value",
    summary="new tasks, and again those that are mostly failed and sometimes solved",
    formula="V = (max_reward - mean) * std; P(task) = V / sum of V",
    paper="2512.07478 (over all steps instead of within one; without decay)",
    options=ValueOptions,
    build=ValueSampler,
)


def choose_refill(
    groups: Sequence[TrajectoryGroup], task_indices: Sequence[int], count: int, *, max_reward: float, seed: int
) -> list[int]:
    """Draw `count` of the groups' tasks by VSPO's task value over all their trajectories; none if every value is 0.

    Deviation from VSPO: the tasks are sampled afresh, so their advantages need no decay. Raises ConfigError for a
    reward above `max_reward`.
    """
    indices: dict[str, int] = {}
    rewards: dict[str, list[float | None]] = {}
    for group, index in zip(groups, task_indices, strict=True):
        indices[group.task.id] = index
        rewards.setdefault(group.task.id, []).extend(group.credited_rewards())
    with boundary(ConfigError, "rollout.dynamic_sampling.max_reward"):
        values = {name: compute_task_value(each, max_reward=max_reward) for name, each in rewards.items()}
    return [indices[name] for name in draw_refill(values, num_slots=count, seed=seed)]
