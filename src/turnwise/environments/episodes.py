"""Episodes of scripted policies in memory, without a renderer: for texts, checks and tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from turnwise.core.episodes import to_single
from turnwise.core.errors import EnvironmentFault, boundary
from turnwise.core.protocols import Environment, EnvironmentFamily, Opening, ScriptedPolicy, StepResult
from turnwise.core.types import Message, Reward, StopReason, Task

Result = TypeVar("Result")
CLOSE_S = 10.0
"""Seconds an environment has to close."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One episode from its opening to its reward."""

    task: Task
    opening: Opening
    replies: tuple[Message, ...]
    results: tuple[StepResult, ...]
    """What the environment answered, one per reply."""
    reward: Reward
    seconds: tuple[float, ...]
    """Of `reset`, of every step, and of `score`."""

    @property
    def messages(self) -> list[Message]:
        """All messages, in order."""
        turns = zip(self.replies, self.results, strict=True)
        return [*self.opening.messages, *(message for reply, result in turns for message in _turn(reply, result))]


def _turn(reply: Message, result: StepResult) -> list[Message]:
    return [reply, *result.observations]


class Episode:
    """One episode under way: `open`, then `turn` until it is over, then `finish`."""

    def __init__(self, family: EnvironmentFamily, task: Task, policy: ScriptedPolicy, *, seed: int, max_turns: int):
        """`seed` is that of the environment and of the policy."""
        self._environment: Environment = to_single(family.build_environment(task))
        self._task, self._policy, self._seed, self._max_turns = task, policy, seed, max_turns
        self._rng = Random(seed)
        self._replies: list[Message] = []
        self._results: list[StepResult] = []
        self._seconds: list[float] = []
        self._opening = Opening(messages=(), tools=())

    @property
    def is_over(self) -> bool:
        """The environment said so, or there were `max_turns` replies."""
        return len(self._replies) >= self._max_turns or bool(self._results and self._results[-1].done)

    async def open(self) -> None:
        """Reset the environment. Raises EnvironmentFault when it fails."""
        self._opening = await self._timed("reset", lambda: self._environment.reset(self._task, self._seed))

    async def turn(self) -> None:
        """One reply of the policy and what the environment answers. Raises EnvironmentFault when either fails."""
        turns = zip(self._replies, self._results, strict=True)
        messages = [*self._opening.messages, *(message for pair in turns for message in _turn(*pair))]
        with boundary(EnvironmentFault, f"the policy {type(self._policy).__name__} in task {self._task.id}"):
            reply = self._policy.reply(self._task, messages, self._rng)
        self._replies.append(reply)
        self._results.append(await self._timed("step", lambda: self._environment.step(reply)))

    async def finish(self) -> Played:
        """Score the episode. Raises EnvironmentFault when that fails."""
        is_done = bool(self._results and self._results[-1].done)
        stop = StopReason.DONE if is_done else StopReason.MAX_TURNS
        reward = await self._timed("score", lambda: self._environment.score(self._replies, stop))
        return Played(
            task=self._task,
            opening=self._opening,
            replies=tuple(self._replies),
            results=tuple(self._results),
            reward=reward,
            seconds=tuple(self._seconds),
        )

    async def close(self) -> None:
        """Close the environment within `CLOSE_S`. Raises EnvironmentFault when that fails."""
        with boundary(EnvironmentFault, f"close in task {self._task.id}"):
            await asyncio.wait_for(self._environment.close(), CLOSE_S)

    async def _timed(self, what: str, call: Callable[[], Awaitable[Result]]) -> Result:
        started = time.perf_counter()
        with boundary(EnvironmentFault, f"{what} in task {self._task.id}"):
            result = await call()
        self._seconds.append(time.perf_counter() - started)
        return result


async def play_episode(
    family: EnvironmentFamily, task: Task, policy: ScriptedPolicy, *, seed: int, max_turns: int
) -> Played:
    """Play one episode. Raises EnvironmentFault, ToolTimeout or ConfigError when it cannot be played."""
    (played,) = await play_interleaved([Episode(family, task, policy, seed=seed, max_turns=max_turns)])
    return played


async def play_interleaved(episodes: Sequence[Episode]) -> list[Played]:
    """Play episodes turn by turn in rotation: all are opened before the first reply, and scored after the last one."""
    try:
        for episode in episodes:
            await episode.open()
        while any(not episode.is_over for episode in episodes):
            for episode in episodes:
                if not episode.is_over:
                    await episode.turn()
        return [await episode.finish() for episode in episodes]
    finally:
        for episode in episodes:
            await episode.close()


def run_apart(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, run in an event loop and a thread of its own: the caller's loop may be running."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(asyncio.run, work).result()
