"""Episodes of the family `repair` in which given commands are run."""

from __future__ import annotations

import asyncio

from turnwise.core.types import Scored, StopReason, Task
from turnwise_worlds.repair.family import Repair
from turnwise_worlds.repair.policies import command_message


def run_commands(family: Repair, task: Task, *commands: str) -> tuple[list[str], Scored]:
    """What the commands print, and the reward of the episode."""

    async def run() -> tuple[list[str], Scored]:
        environment = family.build_environment(task)
        await environment.reset(task, 5)
        printed: list[str] = []
        done = False
        for number, command in enumerate(commands):
            result = await environment.step(command_message(command, number))
            printed += [observation.text for observation in result.observations]
            done = result.done
        reward = await environment.score([], StopReason.DONE if done else StopReason.MAX_TURNS)
        await environment.close()
        assert isinstance(reward, Scored)
        return printed, reward

    return asyncio.run(run())
