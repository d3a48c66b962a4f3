"""Plays episodes for a card: scripted policies, repetitions, and what an episode is worth."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from turnwise.core.errors import ConfigError, EnvironmentFault, TurnwiseError, boundary
from turnwise.core.protocols import EnvironmentFamily, ScriptedPolicy
from turnwise.core.types import Invalid, Message, Reward, Scored, Task
from turnwise.environments.episodes import Episode, Played, play_at_once, play_episode
from turnwise.evaluation.summary import is_right

EPISODE_S = 120.0
"""Seconds after which an episode is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One episode: what it was worth, or why nothing is known of it."""

    task: Task
    played: Played | None
    """None if it could not be played."""
    success: float | None
    """Share of its roles that succeeded; None if any could not be scored."""
    reward: float | None
    """Mean total reward of its roles; None like `success`."""
    problem: str = ""
    """Why it has no success."""


class Player:
    """Plays tasks of one family."""

    def __init__(self, family: EnvironmentFamily, max_turns: int) -> None:
        """`max_turns` is the number of replies of a conversation after which its episode ends."""
        self.family, self.max_turns = family, max_turns

    def find_policy(self, name: str) -> ScriptedPolicy | None:
        """Return the family's policy of that name, None if it has none."""
        try:
            with boundary(EnvironmentFault, f"policy({name!r})"):
                return self.family.policy(name)
        except ConfigError:
            return None

    async def play(self, task: Task, policy: ScriptedPolicy, *, seed: int = 0, max_turns: int | None = None) -> Outcome:
        """Play one episode. What the environment raises is the outcome's problem."""
        try:
            async with asyncio.timeout(EPISODE_S):
                limit = max_turns or self.max_turns
                played = await play_episode(self.family, task, policy, seed=seed, max_turns=limit)
        except TimeoutError:
            return _fail(task, f"an episode ran past {EPISODE_S:g} s")
        except TurnwiseError as cause:
            return _fail(task, str(cause))
        return judge(played)

    async def play_each(self, tasks: Sequence[Task], policy: ScriptedPolicy) -> list[Outcome]:
        """Play one episode per task, one after the other; its seed is the place in the list."""
        return [await self.play(task, policy, seed=seed) for seed, task in enumerate(tasks)]

    async def play_together(self, episodes: Sequence[tuple[Task, ScriptedPolicy]]) -> int:
        """Play episodes at the same time, and return how many. Raises TurnwiseError or TimeoutError of the first that
        fails."""
        ready = [
            Episode(self.family, task, policy, seed=seed, max_turns=self.max_turns)
            for seed, (task, policy) in enumerate(episodes)
        ]
        async with asyncio.timeout(EPISODE_S):
            return len(await play_at_once(ready))


def judge(played: Played) -> Outcome:
    """Value an episode as an evaluation does: the mean over its roles."""
    rewards: Mapping[str, Reward] = played.rewards
    for role, reward in rewards.items():
        if isinstance(reward, Invalid):
            return _fail(played.task, reward.reason, played)
        if not _is_finite(reward):
            return _fail(played.task, f"the reward of {role!r} is {reward.total!r}, which is no finite number", played)
    scored = [reward for reward in rewards.values() if isinstance(reward, Scored)]
    if not scored:
        return _fail(played.task, "no role was scored", played)
    return Outcome(
        task=played.task,
        played=played,
        success=sum(map(is_right, scored)) / len(scored),
        reward=math.fsum(reward.total for reward in scored) / len(scored),
    )


def take_number(outcome: Outcome, number: str) -> float | None:
    """Return the number of an episode: "success", "reward", or the mean of a part of the reward; None if it has
    none."""
    if number == "success":
        return outcome.success
    if number == "reward" or outcome.played is None:
        return outcome.reward
    rewards = [reward for reward in outcome.played.rewards.values() if isinstance(reward, Scored)]
    parts = [part for reward in rewards if (part := reward.part(number)) is not None]
    return math.fsum(parts) / len(parts) if parts else None


class Mixed:
    """Says each reply as one of two policies would, by a coin: attempts that differ, as those of a half-trained
    model."""

    def __init__(self, one: ScriptedPolicy, other: ScriptedPolicy) -> None:
        self._policies = (one, other)

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`. A policy that another's replies have led astray leaves the reply to the other."""
        first = rng.randrange(2)
        try:
            with boundary(EnvironmentFault, "the policy"):
                return self._policies[first].reply(task, messages, rng)
        except EnvironmentFault:
            return self._policies[1 - first].reply(task, messages, rng)


def _fail(task: Task, problem: str, played: Played | None = None) -> Outcome:
    return Outcome(task=task, played=played, success=None, reward=None, problem=problem)


def _is_finite(reward: Scored) -> bool:
    return math.isfinite(reward.total) and all(math.isfinite(part.value) for part in reward.parts)
