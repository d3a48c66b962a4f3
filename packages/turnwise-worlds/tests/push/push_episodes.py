"""Episodes of `push` for its tests."""

import asyncio
from collections.abc import Sequence
from random import Random

from turnwise.core.protocols import StepResult
from turnwise.core.types import Message, Reward, Scored, StopReason, Task
from turnwise.environments.replies import answer_message
from turnwise_worlds.push.bins import Action, write_chunk
from turnwise_worlds.push.family import Push


def play(family: Push, task: Task, texts: Sequence[str]) -> tuple[list[StepResult], Reward]:
    """Answer with these texts until the episode ends."""

    async def run() -> tuple[list[StepResult], Reward]:
        environment = family.build_environment(task)
        await environment.reset(task, 0)
        results, replies = [], []
        for text in texts:
            replies.append(answer_message(text))
            results.append(await environment.step(replies[-1]))
            if results[-1].done:
                break
        reward = await environment.score(replies, StopReason.DONE)
        await environment.close()
        return results, reward

    return asyncio.run(run())


def play_policy(family: Push, task: Task, policy: str, seed: int = 0) -> tuple[list[StepResult], Scored]:
    """Play a scripted policy to the end."""
    random, scripted = Random(seed), family.policy(policy)

    async def run() -> tuple[list[StepResult], Reward]:
        environment = family.build_environment(task)
        messages, replies = list((await environment.reset(task, 0)).messages), list[Message]()
        results: list[StepResult] = []
        while not results or not results[-1].done:
            replies.append(scripted.reply(task, messages, random))
            results.append(await environment.step(replies[-1]))
            messages += [replies[-1], *results[-1].observations]
        return results, await environment.score(replies, StopReason.DONE)

    results, reward = asyncio.run(run())
    assert isinstance(reward, Scored)
    return results, reward


def worth(policy: str, count: int = 40, **arguments: object) -> float:
    """Success of a policy on held-out tasks."""
    family = Push(**arguments)
    return sum(play_policy(family, family.task("heldout", i), policy, i)[1].total for i in range(count)) / count


def draw_chunks(random: Random, count: int, longest: int = 2, reach: int = 4) -> list[list[Action]]:
    """Draw chunks of whole-cell moves."""
    return [
        [(random.randint(-reach, reach), random.randint(-reach, reach)) for _ in range(random.randint(1, longest))]
        for _ in range(count)
    ]


def write_all(chunks: Sequence[Sequence[Action]]) -> list[str]:
    """Write chunks as replies."""
    return [write_chunk(chunk) for chunk in chunks]
