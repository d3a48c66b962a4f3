"""Policies for plain classes: the oracle that the class provides, random calls, and a mixture of the two."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from turnwise.core.protocols import ScriptedPolicy
from turnwise.core.types import Message, Task, ToolCall, text_message
from turnwise.environments.classes.contract import Contract
from turnwise.environments.classes.environment import ClassEnvironment
from turnwise.environments.episodes import run_apart

LAST_WORDS = "done"
"""The reply without calls that ends a random episode."""
_INTEGER = re.compile(r"(?<![\w.])-?\d{1,9}(?!\w|\.\d)")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePolicy:
    """Replays the episode so far on its own object and asks that object for the next step."""

    build: Callable[[], ClassEnvironment]

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`. Raises EnvironmentFault if the class cannot say what is right."""
        step = run_apart(self._ask(task, messages))
        if isinstance(step, str):
            return text_message("assistant", step)
        return _call(*step, number=_count_calls(messages))

    async def _ask(self, task: Task, messages: Sequence[Message]) -> tuple[str, dict[str, Any]] | str:
        twin = self.build()
        try:
            await twin.reset(task, 0)
            for message in messages:
                if message.tool_calls:
                    await twin.step(message)
            return await twin.ask_oracle()
        finally:
            await twin.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomPolicy:
    """Calls a tool drawn at random with arguments that fit its schema; ends after `num_calls` calls.

    Numbers lie between the smallest and the largest in the opening; words come from the opening.
    """

    contract: Contract
    num_calls: int

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`."""
        number = _count_calls(messages)
        if number >= self.num_calls:
            return text_message("assistant", LAST_WORDS)
        name = rng.choice(list(self.contract.tools))
        return _call(name, draw_arguments(self.contract.tools[name].parameters, messages, rng), number=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class NaivePolicy:
    """Acts like the oracle with probability `skill`, otherwise like the random policy."""

    skill: float
    oracle: ScriptedPolicy
    random: ScriptedPolicy

    def reply(self, task: Task, messages: Sequence[Message], rng: Random) -> Message:
        """See `ScriptedPolicy.reply`."""
        return (self.oracle if rng.random() < self.skill else self.random).reply(task, messages, rng)


def _count_calls(messages: Sequence[Message]) -> int:
    return sum(len(message.tool_calls) for message in messages)


def _call(name: str, arguments: Mapping[str, Any], *, number: int) -> Message:
    text = json.dumps(arguments, ensure_ascii=False)
    return text_message("assistant", "", tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=text),))


def draw_arguments(schema: Mapping[str, Any], messages: Sequence[Message], rng: Random) -> dict[str, Any]:
    """Draw arguments that fit a tool's JSON schema: all required ones, and each other one half the time."""
    opening = " ".join(message.text for message in messages if message.role in ("system", "user"))
    required = schema.get("required") or ()
    return {
        name: _draw(part, opening, rng)
        for name, part in (schema.get("properties") or {}).items()
        if name in required or rng.random() < 0.5
    }


def _draw(schema: Mapping[str, Any] | bool, opening: str, rng: Random) -> Any:
    """Draw a value that fits a schema."""
    if not isinstance(schema, Mapping):
        schema = {}
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "anyOf" in schema:
        return _draw(rng.choice(schema["anyOf"]), opening, rng)
    kind = schema.get("type", "string")
    kind = kind if isinstance(kind, str) else rng.choice(kind)
    if kind in ("integer", "number"):
        mentioned = [int(text) for text in _INTEGER.findall(opening)]
        low, high = (min(mentioned), max(mentioned)) if len(set(mentioned)) > 1 else (0, 9)
        return rng.randint(low, high)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return [_draw(schema.get("items", {}), opening, rng) for _ in range(rng.randint(1, 3))]
    if kind == "object":
        values = schema.get("additionalProperties")
        named = {name: _draw(part, opening, rng) for name, part in (schema.get("properties") or {}).items()}
        return {**named, **({"key": _draw(values, opening, rng)} if isinstance(values, Mapping) else {})}
    return None if kind == "null" else rng.choice(_WORD.findall(opening) or ["word"])
