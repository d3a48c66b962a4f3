"""The other way: a family of Turnwise as a Gymnasium environment whose observations and actions are text."""

from __future__ import annotations

import asyncio
import json
import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Environment, EnvironmentFamily, Opening, Split
from turnwise.core.types import Invalid, Message, StopReason, ToolCall, text_message
from turnwise.environments.adapters.packages import require_package

if TYPE_CHECKING:
    import gymnasium

NUM_TASKS = 2**20
"""Tasks that a seed chooses from, where the family has no end."""


def to_gymnasium(family: EnvironmentFamily, *, split: Split = "train", max_turns: int = 16) -> gymnasium.Env[str, str]:
    """A `gymnasium.Env` that plays one task of the family per episode, chosen by the seed of `reset`.

    An action is a reply: a JSON object `{"name": ..., "arguments": {...}}` calls a tool, any other text is said. An
    observation is the text of the new messages. The reward comes with the last step. Text outside printable ASCII is
    escaped, since the spaces must name their characters. Raises ConfigError without gymnasium.
    """
    require_package("gymnasium", "1.0", "gymnasium")
    import gymnasium

    characters = string.printable
    text = gymnasium.spaces.Text(max_length=2**20, min_length=0, charset=characters)

    class FamilyEnv(gymnasium.Env[str, str]):  # type: ignore[misc] # Any where gymnasium is missing
        """One task at a time."""

        observation_space = text
        action_space = gymnasium.spaces.Text(max_length=2**16, min_length=0, charset=characters)
        metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as gymnasium.Env declares it

        def __init__(self) -> None:
            self._loop = asyncio.new_event_loop()
            self._environment: Environment | None = None
            self._replies: list[Message] = []

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            """Open a task; `info` has its id and the tools."""
            super().reset(seed=seed)
            self._end()
            index = int(self.np_random.integers(NUM_TASKS))
            task = family.task(split, index)
            self._environment, self._replies = family.build_environment(task), []
            opening = self._loop.run_until_complete(self._environment.reset(task, index))
            return _escape(_join(opening.messages)), {"task": task.id, "tools": _describe(opening)}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            """Say something. Raises EnvironmentFault before `reset`, and for an episode that could not be judged."""
            if self._environment is None:
                raise EnvironmentFault("step was called before reset, or after the end; call reset")
            self._replies.append(read_action(action, len(self._replies)))
            result = self._loop.run_until_complete(self._environment.step(self._replies[-1]))
            truncated = not result.done and len(self._replies) >= max_turns
            if not result.done and not truncated:
                return _escape(_join(result.observations)), 0.0, False, False, {}
            stop = StopReason.DONE if result.done else StopReason.MAX_TURNS
            reward = self._loop.run_until_complete(self._environment.score(self._replies, stop))
            self._end()
            if isinstance(reward, Invalid):
                raise EnvironmentFault(f"the episode could not be judged: {reward.reason}")
            parts: Mapping[str, float] = {part.name: part.value for part in reward.parts}
            return _escape(_join(result.observations)), reward.total, result.done, truncated, dict(parts)

        def _end(self) -> None:
            if self._environment is not None:
                self._loop.run_until_complete(self._environment.close())
                self._environment = None

        def close(self) -> None:
            """Free the episode."""
            if not self._loop.is_closed():
                self._end()
                self._loop.close()

    return FamilyEnv()


def read_action(action: str, number: int) -> Message:
    """The reply that an action stands for; `number` keeps call ids apart."""
    try:
        call = json.loads(action)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict) or set(call) != {"name", "arguments"} or not isinstance(call["name"], str):
        return text_message("assistant", action)
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    return text_message(
        "assistant", "", tool_calls=(ToolCall(id=f"call_{number}", name=call["name"], arguments=arguments),)
    )


def _join(messages: tuple[Message, ...]) -> str:
    return "\n\n".join(message.text for message in messages)


def _escape(text: str) -> str:
    return "".join(c if c in string.printable else c.encode("unicode_escape").decode() for c in text)


def _describe(opening: Opening) -> str:
    return json.dumps([[tool.name, tool.description, tool.parameters] for tool in opening.tools])
