"""Episodes of scripted policies in environments that ask: for the texts of a tokenizer, checks and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from turnwise.core.episodes import AGENT, Ask, AskingEnvironment, EpisodeEnd
from turnwise.core.protocols import ScriptedPolicy, Split
from turnwise.core.types import Message, Reward, StopReason, Task
from turnwise.environments.episodes import run_apart


class AskingFamily(Protocol):
    """An `EnvironmentFamily` whose environments ask."""

    def task(self, split: Split, index: int) -> Task:
        """See `EnvironmentFamily`."""
        ...

    def build_environment(self, task: Task) -> AskingEnvironment:
        """See `EnvironmentFamily`."""
        ...

    def policy(self, name: str) -> ScriptedPolicy:
        """See `EnvironmentFamily`."""
        ...

    def texts(self, count: int) -> Sequence[str]:
        """See `EnvironmentFamily`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One episode of one role."""

    asks: tuple[Ask, ...]
    replies: tuple[Message, ...]
    """One for each ask."""
    reward: Reward


def play(family: AskingFamily, task: Task, policy: ScriptedPolicy, *, seed: int) -> Played:
    """An episode in which one reply is wanted at a time; `seed` is that of the environment and of the policy."""
    return run_apart(_play(family, task, policy, seed))


async def _play(family: AskingFamily, task: Task, policy: ScriptedPolicy, seed: int) -> Played:
    environment, random = family.build_environment(task), Random(seed)
    read: dict[str, list[Message]] = {}
    said: dict[str, list[Message]] = {}
    asks: list[Ask] = []
    replies: list[Message] = []
    try:
        asked = await environment.begin(task, seed)
        while asked.asks:
            [ask] = asked.asks
            messages = read.setdefault(ask.conversation, [])
            messages += ask.messages
            reply = policy.reply(task, messages, random)
            messages.append(reply)
            said.setdefault(ask.conversation, []).append(reply)
            asks.append(ask)
            replies.append(reply)
            asked = await environment.tell(ask.conversation, reply)
        rewards = await environment.score(said, EpisodeEnd(stop=StopReason.DONE))
    finally:
        await environment.close()
    return Played(asks=tuple(asks), replies=tuple(replies), reward=rewards[AGENT])


def list_texts(family: AskingFamily, count: int) -> list[str]:
    """`count` texts of training tasks as the oracle meets and says them: what is asked, and replies without tags."""
    return run_apart(_list_texts(family, count))


async def _list_texts(family: AskingFamily, count: int) -> list[str]:
    oracle = family.policy("oracle")
    texts: list[str] = []
    index = 0
    while len(texts) < count:
        played = await _play(family, family.task("train", index), oracle, seed=0)
        for ask, reply in zip(played.asks, played.replies, strict=True):
            said = " ".join(word for word in reply.text.split() if not word.startswith("<"))
            texts += [*(f" {message.text.strip()}" for message in ask.messages), f" {said}"]
        index += 1
    return texts[:count]
