"""One task of the family `coding` in both forms, and episodes of it in the real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from turnwise.core.errors import SandboxError
from turnwise.core.types import Message, Scored, StopReason, Task, text_message
from turnwise_worlds.coding.family import Coding
from turnwise_worlds.coding.judge import Form
from turnwise_worlds.coding.policies import run_message, submit_message

VISIBLE = ([3, 8, 1], [6, 2, 9])
HIDDEN = ([4, 4, 0, 7], [-5, -9], [50, 2, 31, 50, 8, -1])


def solve(x: list[int]) -> list[int]:
    """The largest number, then the first."""
    return [max(x), x[0]]


def build_task(form: Form = "functional") -> Task:
    """The task of `solve`."""

    def rows(inputs: Sequence[list[int]]) -> list[list[object]]:
        if form == "functional":
            return [[[x], solve(x)] for x in inputs]
        return [[" ".join(map(str, x)) + "\n", " ".join(map(str, solve(x)))] for x in inputs]

    payload = {
        "form": form,
        "entry": "solve",
        "solution": "",
        "visible": rows(VISIBLE),
        "hidden": rows(HIDDEN),
        "other": rows([[0, 0, 0]]),
    }
    return Task(environment="coding", prompt=(text_message("user", "solve 3 8 1 gives 8 3"),), payload=payload)


@cache
def _first_family() -> Coding:
    family = Coding()
    try:
        submit(family, "")
    except SandboxError as error:
        pytest.skip(f"no sandbox here: {error}")
    return family


def open_family(**arguments: Any) -> Coding:
    """A family whose sandbox runs, one sandbox for all. Skips where there is none; what fails later is a failure."""
    family = Coding(**arguments)
    family._runs = _first_family()._runs
    return family


def play(family: Coding, replies: Sequence[Message], task: Task | None = None) -> tuple[list[str], Scored]:
    """What the replies are answered, and the reward of the episode."""
    task = build_task() if task is None else task

    async def run() -> tuple[list[str], Scored]:
        environment = family.build_environment(task)
        await environment.reset(task, 5)
        read: list[str] = []
        done = False
        for reply in replies:
            result = await environment.step(reply)
            read += [observation.text for observation in result.observations]
            done = result.done
        reward = await environment.score(replies, StopReason.DONE if done else StopReason.MAX_TURNS)
        await environment.close()
        assert isinstance(reward, Scored)
        return read, reward

    return asyncio.run(run())


def submit(family: Coding, program: str, form: Form = "functional") -> Scored:
    """The reward of a program that is submitted untested."""
    return play(family, [submit_message(program)], build_task(form))[1]


def run_and_submit(family: Coding, *programs: str) -> tuple[list[str], Scored]:
    """Every program is run, and the last one submitted."""
    replies = [run_message(program, number) for number, program in enumerate(programs)]
    return play(family, [*replies, submit_message(programs[-1])])


def parts(reward: Scored) -> dict[str, float]:
    """The parts of a reward by name."""
    return {part.name: part.value for part in reward.parts}
