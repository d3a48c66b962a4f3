"""The sampler of a run: what it is told of each step, its choices, its metrics, and its state in checkpoints.

A step's results are taken in when the step takes its groups, those that were dropped while it was collected included.
A choice is a function of the run's seed, the number of the draw, the results of the steps taken before, and the draws
before. In asynchronous training the results of draws under way come later; nothing waits for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import ConfigError, DataError, boundary
from turnwise.core.metrics import Mean, Metric, Sum
from turnwise.core.seeds import derive_seed, uniforms
from turnwise.core.types import DropReason, Task, TrajectoryGroup
from turnwise.curriculum.offered import Offered
from turnwise.curriculum.sampler import NUM_LUCKY, Choice, Sampler, TaskResult

ENVIRONMENT = "environment"
"""Value of `curriculum.by` that tells tasks apart by their environment."""
MAX_KINDS = 20
"""Most kinds in a step that have metrics of their own."""
REFILL = "refill"
"""Pool of tasks that dynamic sampling draws again within a step; a sampler does not choose them."""
UNSEEN_REASONS = (DropReason.LOST_VERSION, DropReason.LOST_TASK)
"""Groups dropped for these tell a sampler nothing: their weights or their task are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTask:
    """What a draw was for."""

    task: int
    """Index in the training split."""
    pool: str


class Curriculum:
    """Chooses the tasks of a run by a sampler."""

    def __init__(
        self,
        sampler: Sampler,
        *,
        name: str,
        seed: int,
        by: str,
        read_rewards: Callable[[TrajectoryGroup], Sequence[float]],
    ) -> None:
        """`name` is that of the sampler, for errors; `by` the field of a task's payload that tells kinds apart;
        `read_rewards` returns the rewards of the attempts that count."""
        self._sampler = sampler
        self._name = name
        self._seed = seed
        self._by = by
        self._read_rewards = read_rewards
        self._drawn: dict[int, DrawnTask] = {}

    def note(self, draw: int, drawn: DrawnTask) -> None:
        """Record what a draw is for."""
        self._drawn[draw] = drawn

    def name_pool(self, draw: int) -> str:
        """Return what a draw was for."""
        return self._drawn[draw].pool

    def identify(self, task: Task) -> tuple[str, str]:
        """Return kind and identity of a task, for `Offered`."""
        return self.name_kind(task), task.id

    def name_kind(self, task: Task) -> str:
        """Return the kind of a task; empty if tasks have none."""
        return task.environment if self._by == ENVIRONMENT else str(task.payload.get(self._by, ""))

    def choose(self, draw: int, offered: Offered) -> Choice:
        """Return which task the next draw is for. Raises DataError if none is left, ConfigError for a sampler that
        raises or chooses what is not offered."""
        luck = uniforms(derive_seed(self._seed, "curriculum", draw), NUM_LUCKY)
        what = f"curriculum.sampler={self._name!r}"
        with boundary(ConfigError, what):
            choice = self._sampler.choose(offered, luck.tolist())
        if choice is None:
            raise DataError(
                f"{what} has no task left for draw {draw}: of {offered.num_known} tasks of the training split, every "
                "one is being played or left out; lower rollout.tasks_per_step or schedule.max_staleness, or add tasks "
                "to the environment"
            )
        if not isinstance(choice, Choice):
            raise ConfigError(f"{what} returned {choice!r}; it must return a Choice, or None")
        if choice.again is not None and not offered.is_free(choice.again):
            raise ConfigError(
                f"{what} chose task {choice.again}, which was never drawn, is being played or is left out"
            )
        if choice.again is None and not offered.has_new(choice.kind):
            kind = "" if choice.kind is None else f" of kind {choice.kind!r}"
            raise ConfigError(f"{what} chose a new task{kind}, and none is left; ask `has_new` before")
        return choice

    def observe(
        self, step: int, groups: Sequence[TrajectoryGroup], dropped: Sequence[tuple[TrajectoryGroup, DropReason]] = ()
    ) -> dict[str, Metric]:
        """Tell the sampler what a step's groups earned, those it trains on and those dropped meanwhile. Returns the
        step's metrics."""
        seen = [*groups, *(group for group, reason in dropped if reason not in UNSEEN_REASONS)]
        metrics = _StepMetrics()
        results = []
        for group in sorted(seen, key=lambda group: group.draw.index):
            drawn = self._drawn[group.draw.index]
            kind = self.name_kind(group.task)
            rewards = tuple(float(reward) for reward in self._read_rewards(group) if math.isfinite(reward))
            metrics.count(drawn.pool, kind, rewards)
            if rewards:
                results.append(TaskResult(task=drawn.task, kind=kind, rewards=rewards, step=step))
        with boundary(ConfigError, f"curriculum.sampler={self._name!r}"):
            self._sampler.observe(results, step)
            state = self._sampler.measure()
        return metrics.finish() | {f"curriculum/{name}": Mean(value) for name, value in state.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._sampler.load_state_dict(state)


class _StepMetrics:
    """Counts the groups of a step by pool and by kind."""

    def __init__(self) -> None:
        self._pools: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._solved: dict[tuple[str, str], list[float]] = {}
        self._num_unscored = 0

    def count(self, pool: str, kind: str, rewards: Sequence[float]) -> None:
        """Count one group."""
        self._pools[pool] += 1
        self._kinds[kind] += 1
        self._num_unscored += not rewards
        if rewards:
            for key in (("pool", pool), ("kind", kind)):
                self._solved.setdefault(key, []).append(math.fsum(rewards) / len(rewards))

    def finish(self) -> dict[str, Metric]:
        """Return the metrics of the step; kinds are left out if there are too many, and their number is told."""
        kinds = self._kinds if len(self._kinds) <= MAX_KINDS else {}
        metrics: dict[str, Metric] = {
            "curriculum/unscored_groups": Sum(self._num_unscored),
            "curriculum/kinds": Mean(len(self._kinds)),
        }
        for what, counts in (("pool", self._pools), ("kind", kinds)):
            for name, count in sorted(counts.items()):
                label = name or "all"
                metrics[f"curriculum/{what}_share_{label}"] = Mean(count, self._pools.total())
                if (what, name) in self._solved:
                    metrics[f"curriculum/{what}_reward_{label}"] = Mean.of(self._solved[what, name])
        return metrics
