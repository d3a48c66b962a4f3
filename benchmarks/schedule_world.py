"""The search world with slow tools, for `schedule.py`: `environment.name = "schedule_world:SlowSearch"`, with this
folder on PYTHONPATH.

A search waits before it answers, like one over a network; the processor is free meanwhile. Waits are log-normal."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import NormalDist
from typing import Any

from turnwise.core.protocols import Environment, Opening, StepResult
from turnwise.core.seeds import rng
from turnwise.core.types import Message, Reward, StopReason, Task
from turnwise.environments.search_qa.family import SearchQA


class SlowEnvironment:
    """Passes everything on to `environment`; a reply with calls waits first. Implements `Environment`."""

    def __init__(self, environment: Environment, *, waits: Random, median_s: float, p99_s: float) -> None:
        """`waits` draws the seconds, log-normal with this median and 99th percentile."""
        self._environment = environment
        self._waits = waits
        self._location = math.log(median_s)
        self._scale = math.log(p99_s / median_s) / NormalDist().inv_cdf(0.99)

    async def reset(self, task: Task, seed: int) -> Opening:
        """See `Environment.reset`."""
        return await self._environment.reset(task, seed)

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`."""
        for _ in message.tool_calls:
            await asyncio.sleep(self._waits.lognormvariate(self._location, self._scale))
        return await self._environment.step(message)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """See `Environment.score`."""
        return await self._environment.score(replies, stop)

    async def close(self) -> None:
        """See `Environment.close`."""
        await self._environment.close()


class SlowSearch(SearchQA):
    """`SearchQA` whose training tasks have slow searches; held-out ones answer at once.

    The n-th call of the k-th attempt at a task waits equally long in every run, whatever the schedule: how long
    depends on the task, k and n only.
    """

    def __init__(self, *, median_s: float, p99_s: float, **arguments: Any) -> None:
        """With `median_s` 0 nothing waits; `arguments` as for `SearchQA`."""
        super().__init__(**arguments)
        self._median_s, self._p99_s = median_s, p99_s
        self._num_attempts: Counter[str] = Counter()

    def build_environment(self, task: Task) -> Environment:
        """See `EnvironmentFamily.build_environment`."""
        environment = super().build_environment(task)
        if not self._median_s or task.payload["split"] != "train":
            return environment
        self._num_attempts[task.id] += 1
        waits = rng("wait", task.id, self._num_attempts[task.id])
        return SlowEnvironment(environment, waits=waits, median_s=self._median_s, p99_s=self._p99_s)
