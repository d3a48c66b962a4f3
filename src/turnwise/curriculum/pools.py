"""Pools of easy, normal and hard tasks by solve rate, each with its share of the draws.

The pools and their thresholds are prime-rl's `easy_threshold` and `hard_threshold`. There tasks leave the normal pool
for good until the run is resumed, and only the normal one is drawn from. Here each pool keeps its share, a task changes
its pool with its latest result, and a pool without a free task gives its share to the others: none can run dry for
good. Tasks that were never drawn are a pool too, since a generated split never ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from turnwise.config.section import Section
from turnwise.curriculum.choosing import choose_new, draw_even, draw_weighted
from turnwise.curriculum.sampler import NEW, Choice, OfferedTasks, SamplerKind, TaskResult


class PoolOptions(Section):
    """Options of `difficulty`."""

    easy_at: float = 1.0
    """A task whose mean reward is at least this is easy."""
    hard_at: float = 0.0
    """A task whose mean reward is at most this is hard."""
    new: float = Field(0.5, ge=0, le=1)
    """Share of draws that are tasks never drawn before."""
    easy: float = Field(0.1, ge=0, le=1)
    """Share of draws from the easy pool."""
    hard: float = Field(0.1, ge=0, le=1)
    """Share of draws from the hard pool. The normal one has the rest."""

    @model_validator(mode="after")
    def _check(self) -> PoolOptions:
        if self.hard_at >= self.easy_at:
            raise ValueError(f"hard_at={self.hard_at:g} must be below easy_at={self.easy_at:g}")
        if self.new + self.easy + self.hard > 1 + 1e-9:
            raise ValueError(f"new + easy + hard is {self.new + self.easy + self.hard:g}; it must be at most 1")
        return self


class PoolSampler:
    """Implements `Sampler`."""

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        self._shares = {
            NEW: options.new,
            "easy": options.easy,
            "normal": max(0.0, 1 - options.new - options.easy - options.hard),
            "hard": options.hard,
        }
        self._pools: dict[int, str] = {}

    def choose(self, offered: OfferedTasks, luck: Sequence[float]) -> Choice | None:
        """A pool by its share among those that have a free task, then one of its tasks with equal chances. Pools of
        share 0 are drawn from only if no other has a task."""
        free: dict[str, list[int]] = {}
        for task, pool in sorted(self._pools.items()):
            if offered.is_free(task):
                free.setdefault(pool, []).append(task)
        names = [name for name in self._shares if (offered.has_new() if name == NEW else free.get(name))]
        chosen = draw_weighted({name: self._shares[name] for name in names}, luck[0]) or draw_even(names, luck[0])
        if chosen is None or chosen == NEW:
            return choose_new(offered, luck[1])
        return Choice(pool=chosen, again=draw_even(free[chosen], luck[1]))

    def observe(self, results: Sequence[TaskResult], step: int) -> None:
        """See `Sampler`."""
        for result in results:
            easy, hard = result.mean >= self._options.easy_at, result.mean <= self._options.hard_at
            self._pools[result.task] = "easy" if easy else "hard" if hard else "normal"

    def measure(self) -> Mapping[str, float]:
        """The number of tasks in each pool."""
        sizes = Counter(self._pools.values())
        return {f"tasks_{name}": sizes[name] for name in self._shares if name != NEW}

    def state_dict(self) -> dict[str, Any]:
        """See `Sampler`."""
        return {"pools": {str(task): pool for task, pool in self._pools.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Sampler`."""
        self._pools = {int(task): pool for task, pool in state["pools"].items()}


DIFFICULTY = SamplerKind(
    name="difficulty",
    summary="new, easy, normal and hard tasks, each with a share",
    formula="easy if mean >= easy_at, hard if mean <= hard_at, else normal; P(pool) = its share among free pools",
    paper="prime-rl's difficulty pools",
    options=PoolOptions,
    build=PoolSampler,
)
