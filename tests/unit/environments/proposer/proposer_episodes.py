"""Episodes of proposer and solvers, played by hand."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from turnwise.core.episodes import AskingEnvironment, EpisodeEnd
from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, Reward, Scored, StopReason, Task

DONE = EpisodeEnd(stop=StopReason.DONE)
Speak = Callable[[str, list[Message]], Message]
"""From a conversation's name and messages to the next reply."""


def speak_as(policy: ScriptedPolicy, task: Task, seed: int = 0) -> Speak:
    rng = Random(seed)
    return lambda conversation, messages: policy.reply(task, messages, rng)


def play(
    environment: AskingEnvironment, task: Task, speak: Speak, end: EpisodeEnd = DONE
) -> tuple[Mapping[str, Reward], dict[str, list[Message]]]:
    """Rewards by role, and what was said in every conversation."""

    async def run() -> tuple[Mapping[str, Reward], dict[str, list[Message]]]:
        said: dict[str, list[Message]] = {}
        replies: dict[str, list[Message]] = {}
        waiting = list((await environment.begin(task, 0)).asks)
        for ask in waiting:
            said[ask.conversation] = list(ask.messages)
        while waiting:
            name = waiting.pop(0).conversation
            reply = speak(name, said[name])
            replies.setdefault(name, []).append(reply)
            said[name].append(reply)
            for ask in (await environment.tell(name, reply)).asks:
                said.setdefault(ask.conversation, []).extend(ask.messages)
                waiting.append(ask)
        return await environment.score(replies, end), said

    return asyncio.run(run())


def read_parts(reward: Reward) -> dict[str, float]:
    assert isinstance(reward, Scored)
    return {part.name: part.value for part in reward.parts}
