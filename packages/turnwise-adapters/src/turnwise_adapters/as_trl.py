"""Exports a Turnwise family as a class for TRL's `environment_factory`."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.protocols import EnvironmentFamily, Split
from turnwise.core.types import ToolSpec, text_message
from turnwise.environments.episodes import run_apart
from turnwise_adapters.outward import OutwardEpisode, call_message, join_texts

ANSWER = "answer"
"""The method that sends a text. TRL tells an environment about calls only, never about a reply's text."""
TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


def to_trl(family: EnvironmentFamily, *, split: Split = "train", max_turns: int = 16) -> type:
    """Return a class for `GRPOTrainer(environment_factory=...)`, whose methods are the family's tools and
    `answer(text)`.

    `reset` opens the task named by the row's column `index`, and returns the text that TRL appends to the prompt; rows
    of `to_trl_rows` have that column. The tools are those of the split's first task. `get_reward` returns None, which
    TRL leaves out, if the episode cannot be judged. Raises ConfigError if a tool's name cannot be a method's.
    """

    class FamilyEnvironment:
        """One task at a time."""

        def __init__(self) -> None:
            self._loop = asyncio.new_event_loop()
            self._episode = OutwardEpisode(family, split=split, max_turns=max_turns)

        def reset(self, index: int, **_: object) -> str:
            """Open the task and return what the player reads."""
            _task, opening = self._loop.run_until_complete(self._episode.open(index))
            return join_texts(opening.messages)

        def get_reward(self) -> float | None:
            """Return the reward of the calls and answers so far; None if the episode cannot be judged."""
            try:
                return self._loop.run_until_complete(self._episode.score()).total
            except EnvironmentFault:
                return None

        def answer(self, text: str) -> str:
            """Give the final answer, in the form that the question asks for.

            Args:
                text: The answer.
            """
            return self._loop.run_until_complete(self._episode.reply(text_message("assistant", text)))

        def __del__(self) -> None:
            if not self._loop.is_closed():
                self._loop.run_until_complete(self._episode.close())
                self._loop.close()

    for tool in _list_tools(family, split):
        if not tool.name.isidentifier() or tool.name.startswith("_") or hasattr(FamilyEnvironment, tool.name):
            raise ConfigError(f"the name of tool {tool.name!r} cannot be used as a method of TRL's class; rename it")
        setattr(FamilyEnvironment, tool.name, build_method(tool))
    return FamilyEnvironment


def to_trl_rows(count: int) -> list[dict[str, Any]]:
    """Return rows of a training set for `to_trl`: an empty question, to which `reset` appends, and the task's index."""
    return [{"prompt": [{"role": "user", "content": ""}], "index": index} for index in range(count)]


def _list_tools(family: EnvironmentFamily, split: Split) -> tuple[ToolSpec, ...]:
    async def look() -> tuple[ToolSpec, ...]:
        episode = OutwardEpisode(family, split=split, max_turns=1)
        try:
            return (await episode.open(0))[1].tools
        finally:
            await episode.close()

    return run_apart(look())


def _describe(name: str, schema: Mapping[str, Any]) -> str:
    text = str(schema.get("description", name))
    return f"{text} (choices: {json.dumps(schema['enum'])})" if "enum" in schema else text


def build_method(tool: ToolSpec) -> Callable[..., str]:
    """Build a method from whose signature and docstring TRL reads the tool's schema again: names, types, descriptions,
    choices, and what is required. Bounds of numbers cannot be expressed and are left out."""
    properties = {name: part if isinstance(part, Mapping) else {} for name, part in tool.properties.items()}
    required = set(tool.required)
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=TYPES.get(str(schema.get("type")), str),
            default=inspect.Parameter.empty if name in required else None,
        )
        for name, schema in properties.items()
    ]

    def method(self: Any, /, **arguments: object) -> str:
        given = {name: value for name, value in arguments.items() if name in required or value is not None}
        message = call_message(tool.name, given, self._episode.num_replies)
        return str(self._loop.run_until_complete(self._episode.reply(message)))

    lines = [f"    {name}: {_describe(name, schema)}" for name, schema in properties.items()]
    method.__name__ = method.__qualname__ = tool.name
    method.__doc__ = "\n".join([tool.description, *(["", "Args:", *lines] if lines else [])])
    method.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": str}
    self_parameter = inspect.Parameter("self_" if "self" in properties else "self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = inspect.Signature([self_parameter, *parameters], return_annotation=str)  # type: ignore[attr-defined]
    return method
