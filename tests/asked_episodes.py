"""Episodes of environments that ask, with replies that a test makes up."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from random import Random

from turnwise.core.episodes import Ask, AskingEnvironment, EpisodeEnd
from turnwise.core.protocols import EnvironmentFamily, ScriptedPolicy
from turnwise.core.types import Message, Reward, Scored, StopReason, Task
from turnwise.environments.episodes import Played, play_episode

DONE = EpisodeEnd(stop=StopReason.DONE)
Speak = Callable[[Ask, list[Message]], Message]
"""From an ask and the messages of its conversation to the reply."""


def speak_as(policies: Mapping[str, ScriptedPolicy] | ScriptedPolicy, task: Task, *, seed: int) -> Speak:
    """The policies by role, or one of all roles, with one stream of random numbers."""
    rng = Random(seed)
    return lambda ask, messages: (policies[ask.role] if isinstance(policies, Mapping) else policies).reply(
        task, messages, rng
    )


def play_asked(
    environment: AskingEnvironment, task: Task, speak: Speak, *, seed: int = 0, end: EpisodeEnd = DONE
) -> tuple[dict[str, Reward], list[Ask], dict[str, list[Message]]]:
    """Rewards by role, everything that was asked, and the messages of every conversation.

    With `end.conversation` the episode ends where that one is asked."""

    async def run() -> tuple[dict[str, Reward], list[Ask], dict[str, list[Message]]]:
        asks: list[Ask] = []
        messages: dict[str, list[Message]] = {}
        replies: dict[str, list[Message]] = {}
        asked = await environment.begin(task, seed)
        waiting: deque[Ask] = deque()
        while True:
            for ask in asked.asks:
                messages.setdefault(ask.conversation, []).extend(ask.messages)
                waiting.append(ask)
            if not waiting:
                break
            ask = waiting.popleft()
            asks.append(ask)
            if ask.conversation == end.conversation:
                break
            reply = speak(ask, list(messages[ask.conversation]))
            messages[ask.conversation].append(reply)
            replies.setdefault(ask.conversation, []).append(reply)
            asked = await environment.tell(ask.conversation, reply)
        rewards = dict(await environment.score(replies, end))
        await environment.close()
        assert list(rewards) == [role.name for role in environment.spec.roles]
        return rewards, asks, messages

    return asyncio.run(run())


def play_policy(family: EnvironmentFamily, task: Task, policy: ScriptedPolicy, *, seed: int) -> Played:
    """An episode in which one policy speaks for every role; `seed` is also that of the environment."""
    return asyncio.run(play_episode(family, task, policy, seed=seed, max_turns=1000))


def scored(rewards: Mapping[str, Reward]) -> dict[str, Scored]:
    """Those that were scored, by role."""
    return {role: reward for role, reward in rewards.items() if isinstance(reward, Scored)}


def read_parts(reward: Reward) -> dict[str, float]:
    """The parts of a reward that was scored."""
    assert isinstance(reward, Scored)
    return {part.name: part.value for part in reward.parts}
