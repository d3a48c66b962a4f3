"""What the adapters' tests share: episodes of scripted policies, and what every family of games owes."""

import asyncio
import importlib
import os
from random import Random
from typing import Any

import pytest

from turnwise.core.checked import to_single
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Message, Scored, StopReason, Task
from turnwise.environments.registry import load_family
from turnwise_adapters.game_family import GameFamily
from turnwise_adapters.text_game import write_action

GROUP = os.environ.get("TURNWISE_ADAPTERS", "")


def need(module: str, group: str) -> Any:
    """The module. Without it the test is skipped, or fails where `make test-adapters` has installed its group."""
    return importlib.import_module(module) if group == GROUP else pytest.importorskip(module)


async def play(family: EnvironmentFamily, task: Task, policy: str, seed: int = 0) -> tuple[list[Message], Scored]:
    """The conversation and the reward of one episode."""
    environment, random = to_single(family.build_environment(task)), Random(seed)
    speaker, stop = family.policy(policy), StopReason.MAX_TURNS
    try:
        messages = list((await environment.reset(task, seed)).messages)
        for _ in range(60):
            reply = speaker.reply(task, messages, random)
            result = await environment.step(reply)
            messages += [reply, *result.observations]
            if result.done:
                stop = StopReason.DONE
                break
        reward = await environment.score([m for m in messages if m.role == "assistant"], stop)
    finally:
        await environment.close()
    assert isinstance(reward, Scored)
    return messages, reward


def success(family: EnvironmentFamily, policy: str, count: int) -> float:
    """Share of the first held-out tasks on which a policy succeeds."""

    async def play_all() -> list[Scored]:
        return [(await play(family, family.task("heldout", at), policy, at))[1] for at in range(count)]

    return sum(reward.part("success") or 0.0 for reward in asyncio.run(play_all())) / count


def check_family(name: str, arguments: dict[str, Any], count: int = 4) -> GameFamily:
    """Tasks are functions of split and index, splits share no seed, episodes repeat, texts are as many as asked for."""
    family, other = load_family(name, arguments), load_family(name, arguments)
    assert isinstance(family, GameFamily)
    seeds: dict[str, set[int]] = {}
    for split in ("train", "heldout"):
        tasks = [family.task(split, index) for index in range(count)]  # type: ignore[arg-type]
        assert [other.task(split, index) for index in range(count)] == tasks  # type: ignore[arg-type]
        seeds[split] = {task.payload["seed"] for task in tasks}
        assert len(seeds[split]) == count
    assert not seeds["train"] & seeds["heldout"]
    task = family.task("heldout", 0)
    first, again = (asyncio.run(play(each, task, "random", seed=7)) for each in (family, other))
    assert first == again
    assert len(family.texts(20)) == 20
    return family


async def act(family: GameFamily, actions: list[str], seed: int = 0) -> tuple[list[str], Scored]:
    """What is observed after each action in the first held-out task, and the reward."""
    task = family.task("heldout", seed)
    environment = family.build_environment(task)
    await environment.reset(task, 0)
    seen: list[str] = []
    for number, action in enumerate(actions):
        result = await environment.step(write_action(action, family.rules, number))
        seen += [message.text for message in result.observations]
    reward = await environment.score([], StopReason.MAX_TURNS)
    await environment.close()
    assert isinstance(reward, Scored)
    return seen, reward
