"""Plays episodes of scripted policies in memory, without a renderer: for texts, checks and tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from turnwise.core.episodes import Ask
from turnwise.core.errors import EnvironmentFault, boundary
from turnwise.core.protocols import EnvironmentFamily, Opening, ScriptedPolicy, StepResult
from turnwise.core.types import Message, Reward, Scored, Task
from turnwise.serving.episode import Answer, OutsideEpisode

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One episode from its opening to its rewards."""

    task: Task
    asks: tuple[Ask, ...]
    """The answered requests of all conversations, in the order in which the environment got the replies."""
    replies: tuple[Message, ...]
    """One reply for each request."""
    results: tuple[StepResult, ...]
    """The environment's result of each reply; messages that open or continue conversations are among the
    observations."""
    rewards: Mapping[str, Reward]
    """Rewards by role."""
    seconds: tuple[float, ...]
    """Seconds of the opening, of the answer to every reply, and of scoring."""

    @property
    def opening(self) -> Opening:
        """The opening of the conversation that was requested first; empty if none was."""
        messages, tools = (self.asks[0].messages, self.asks[0].tools) if self.asks else ((), ())
        return Opening(messages=messages, tools=tools)

    @property
    def reward(self) -> Reward:
        """The only role's reward. Raises ValueError if there are several roles."""
        [reward] = self.rewards.values()
        return reward

    @property
    def messages(self) -> list[Message]:
        """Return all messages of an episode with one conversation, in order."""
        turns = zip(self.replies, self.results, strict=True)
        return [*self.opening.messages, *(m for reply, result in turns for m in (reply, *result.observations))]


def find_difference(one: Played, other: Played) -> str:
    """Return what differs between two episodes, timings apart; empty if nothing does."""
    if one.opening != other.opening:
        return "the openings differ"
    for index, (mine, theirs) in enumerate(zip(one.results, other.results, strict=False)):
        if _timeless(mine) != _timeless(theirs):
            return f"turn {index} gets different answers"
    if len(one.results) != len(other.results):
        return f"one has {len(one.results)} turns, the other {len(other.results)}"
    return "" if one.rewards == other.rewards else f"the rewards differ ({_totals(one)} and {_totals(other)})"


def _timeless(result: StepResult) -> StepResult:
    return replace(result, tool_records=tuple(replace(record, seconds=0.0) for record in result.tool_records))


def _totals(played: Played) -> str:
    return ", ".join(f"{each.total:g}" if isinstance(each, Scored) else "Invalid" for each in played.rewards.values())


class Repeated:
    """A policy that says what was said before, in one episode."""

    def __init__(self, replies: Sequence[Message]) -> None:
        self._left = iter(replies)

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`. Raises EnvironmentFault if the episode wants more replies than were said."""
        reply = next(self._left, None)
        if reply is None:
            raise EnvironmentFault(f"task {task.id} wants more replies than were said before")
        return reply


class Episode:
    """A running episode: `open`, then `turn` until it is over, then `finish`. One policy speaks for every role."""

    def __init__(self, family: EnvironmentFamily, task: Task, policy: ScriptedPolicy, *, seed: int, max_turns: int):
        """`seed` is used for the environment and the policy; `max_turns` limits each conversation."""
        self._episode = OutsideEpisode(family.build_environment(task), task, seed=seed, max_turns=max_turns)
        self._task, self._policy, self._rng = task, policy, Random(seed)
        self._messages: dict[str, list[Message]] = {}
        """Messages of every conversation, in order."""
        self._answers: list[Answer] = []
        self._results: list[StepResult] = []
        self._seconds: list[float] = []

    @property
    def is_over(self) -> bool:
        """Whether no reply is requested, or a limit is reached."""
        return self._episode.is_over

    async def open(self) -> None:
        """Start the episode. Raises EnvironmentFault if the environment fails."""
        await self._timed(self._episode.begin())
        self._note(self._episode.wanted)

    async def turn(self) -> None:
        """Play one reply of the policy and the environment's answer. Raises EnvironmentFault if either fails."""
        name = self._episode.wanted[0].conversation
        with boundary(EnvironmentFault, f"the policy {type(self._policy).__name__} in task {self._task.id}"):
            reply = self._policy.reply(self._task, list(self._messages[name]), self._rng)
        self._messages[name].append(reply)
        [answer] = await self._timed(self._episode.reply(reply))
        asked = answer.asked
        self._note(asked.asks)
        self._answers.append(answer)
        self._results.append(
            StepResult(
                observations=(*asked.observations, *(message for ask in asked.asks for message in ask.messages)),
                done=self._episode.is_done,
                tool_records=asked.tool_records,
                scores=asked.scores,
                signals=asked.signals,
            )
        )

    def _note(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            self._messages.setdefault(ask.conversation, []).extend(ask.messages)

    async def finish(self) -> Played:
        """Score the episode. Raises EnvironmentFault if that fails."""
        rewards = await self._timed(self._episode.score())
        return Played(
            task=self._task,
            asks=tuple(answer.ask for answer in self._answers),
            replies=tuple(answer.reply for answer in self._answers),
            results=tuple(self._results),
            rewards=rewards,
            seconds=tuple(self._seconds),
        )

    async def close(self) -> None:
        """Close the environment. Raises EnvironmentFault if that fails or takes too long."""
        if problem := await self._episode.close():
            raise EnvironmentFault(f"task {self._task.id}: {problem}")

    async def _timed(self, work: Awaitable[Result]) -> Result:
        started = time.perf_counter()
        result = await work
        self._seconds.append(time.perf_counter() - started)
        return result


async def play_episode(
    family: EnvironmentFamily, task: Task, policy: ScriptedPolicy, *, seed: int, max_turns: int
) -> Played:
    """Play one episode. Raises EnvironmentFault, ToolTimeout or ConfigError if it cannot be played."""
    (played,) = await play_interleaved([Episode(family, task, policy, seed=seed, max_turns=max_turns)])
    return played


async def play_interleaved(episodes: Sequence[Episode]) -> list[Played]:
    """Play episodes turn by turn in rotation: all are opened before the first reply, and scored after the last."""
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


async def play_at_once(episodes: Sequence[Episode]) -> list[Played]:
    """Play episodes concurrently, as a run does. After all have ended, raises the error of the first that failed."""

    async def play(episode: Episode) -> Played:
        try:
            await episode.open()
            while not episode.is_over:
                await episode.turn()
            return await episode.finish()
        finally:
            await episode.close()

    results = await asyncio.gather(*map(play, episodes), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if isinstance(result, Played)]


def run_apart(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` in its own event loop and thread, because the caller's loop may be running. Returns its result."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(asyncio.run, work).result()
