"""Plays calls in an episode of the tiny project."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.types import Message, Reward, Scored, StopReason, ToolCall, ToolRecord
from turnwise_swe.environment.environment import SweEnvironment
from turnwise_swe.environment.family import Swe

Call = tuple[str, Mapping[str, Any]]
CORE = "src/sums/core.py"
RIGHT: Call = ("edit", {"path": CORE, "old": "a - b", "new": "a + b"})
SUBMIT: Call = ("submit", {})


def bash(command: str) -> Call:
    return "bash", {"command": command}


def call_message(call: Call, number: int) -> Message:
    name, arguments = call
    return Message(
        role="assistant",
        content=(),
        tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(dict(arguments))),),
    )


async def open_episode(family: Swe) -> SweEnvironment:
    task = family.task("train", 0)
    environment = family.build_environment(task)
    assert isinstance(environment, SweEnvironment)
    await environment.reset(task, 0)
    return environment


async def make_calls(environment: SweEnvironment, calls: Sequence[Call]) -> list[ToolRecord]:
    records: list[ToolRecord] = []
    for number, call in enumerate(calls):
        records += (await environment.step(call_message(call, number))).tool_records
    return records


def play(family: Swe, *calls: Call) -> tuple[list[str], Reward]:
    """What each call gives, and the reward."""

    async def run() -> tuple[list[str], Reward]:
        environment = await open_episode(family)
        try:
            records = await make_calls(environment, calls)
            return [record.observation for record in records], await environment.score([], StopReason.DONE)
        finally:
            await environment.close()

    return asyncio.run(run())


def parts(reward: Reward) -> dict[str, float]:
    assert isinstance(reward, Scored)
    return {part.name: part.value for part in reward.parts}
