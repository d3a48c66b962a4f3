"""One task of a family at a time, for the interfaces of others that reset and step."""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnwise.core.checked import judge, to_single
from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Environment, EnvironmentFamily, Opening, Split
from turnwise.core.types import Invalid, Message, Scored, StopReason, Task, ToolCall, text_message


class OutwardEpisode:
    """An episode that is opened again and again; every opening ends the one before."""

    def __init__(self, family: EnvironmentFamily, *, split: Split, max_turns: int) -> None:
        """`max_turns` is the number of replies after which an episode is truncated."""
        self._family, self._split, self._max_turns = family, split, max_turns
        self._environment: Environment | None = None
        self._replies: list[Message] = []
        self._is_done = False

    @property
    def num_replies(self) -> int:
        """Replies since the opening."""
        return len(self._replies)

    @property
    def is_done(self) -> bool:
        """Whether the environment ended the episode."""
        return self._is_done

    @property
    def is_truncated(self) -> bool:
        """Whether it has had all its replies without an end."""
        return not self._is_done and len(self._replies) >= self._max_turns

    async def open(self, index: int) -> tuple[Task, Opening]:
        """Open the split's task at `index`, which is also the episode's seed."""
        await self.close()
        task = self._family.task(self._split, index)
        self._environment = to_single(self._family.build_environment(task))
        return task, await self._environment.reset(task, index)

    async def reply(self, message: Message) -> str:
        """The text of what the environment answers. Raises EnvironmentFault where no episode is under way."""
        environment = self._require()
        if self.is_done or self.is_truncated:
            raise EnvironmentFault("the episode is over; call reset")
        self._replies.append(message)
        result = await environment.step(message)
        self._is_done = result.done
        return join_texts(result.observations)

    async def score(self) -> Scored:
        """The reward of the replies so far. Raises EnvironmentFault where the episode cannot be judged."""
        stop = StopReason.DONE if self.is_done else StopReason.MAX_TURNS
        reward = await judge(self._require(), self._replies, stop)
        if isinstance(reward, Invalid):
            raise EnvironmentFault(f"the episode could not be judged: {reward.reason}")
        return reward

    async def close(self) -> None:
        """Free the episode, if there is one."""
        environment, self._environment = self._environment, None
        self._replies, self._is_done = [], False
        if environment is not None:
            await environment.close()

    def _require(self) -> Environment:
        if self._environment is None:
            raise EnvironmentFault("no episode is under way; call reset")
        return self._environment


def join_texts(messages: Sequence[Message]) -> str:
    """The texts of messages, an empty line between two."""
    return "\n\n".join(message.text for message in messages)


def read_reply(action: str, number: int) -> Message:
    """The reply that a text stands for: `{"name": ..., "arguments": {...}}` calls a tool, any other text is said.

    `number` keeps call ids apart.
    """
    try:
        call = json.loads(action)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict) or set(call) != {"name", "arguments"} or not isinstance(call["name"], str):
        return text_message("assistant", action)
    return call_message(call["name"], call["arguments"], number)


def call_message(name: str, arguments: object, number: int) -> Message:
    """A reply that calls one tool; `number` keeps call ids apart."""
    written = json.dumps(arguments, ensure_ascii=False)
    return text_message("assistant", "", tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=written),))


def describe_tools(opening: Opening) -> str:
    """The tools of an episode as JSON: a name, a description and a schema each."""
    return json.dumps([[tool.name, tool.description, tool.parameters] for tool in opening.tools])
