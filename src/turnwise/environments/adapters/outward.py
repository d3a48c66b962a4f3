"""One task of a family at a time, for the interfaces of others that reset and step.

An environment that asks in several conversations is played reply by reply: what is shown is what was asked first, and
the next reply is its answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import EnvironmentFamily, Opening, Split
from turnwise.core.types import Invalid, Message, Scored, Task, ToolCall, ToolSpec, text_message
from turnwise.serving.episode import OutsideEpisode, choose_reward


class OutwardEpisode:
    """An episode that is opened again and again; every opening ends the one before."""

    def __init__(self, family: EnvironmentFamily, *, split: Split, max_turns: int) -> None:
        """`max_turns` is the number of replies in a conversation after which an episode is truncated."""
        self._family, self._split, self._max_turns = family, split, max_turns
        self._episode: OutsideEpisode | None = None

    @property
    def num_replies(self) -> int:
        """Replies since the opening."""
        return self._episode.num_replies if self._episode else 0

    @property
    def is_done(self) -> bool:
        """Whether the environment ended the episode."""
        return self._episode is not None and self._episode.is_done

    @property
    def is_truncated(self) -> bool:
        """Whether it has had all its replies without an end."""
        return self._episode is not None and self._episode.is_truncated

    @property
    def voice(self) -> dict[str, str]:
        """Who speaks next: role, conversation and tools; empty where there is one conversation, and at the end."""
        if self._episode is None or self._episode.is_single or not self._episode.wanted:
            return {}
        ask = self._episode.wanted[0]
        return {"role": ask.role, "conversation": ask.conversation, "tools": describe_tools(ask.tools)}

    async def open(self, index: int) -> tuple[Task, Opening]:
        """Open the split's task at `index`, which is also the episode's seed."""
        await self.close()
        task = self._family.task(self._split, index)
        environment = self._family.build_environment(task)
        self._episode = OutsideEpisode(environment, task, seed=index, max_turns=self._max_turns)
        await self._episode.begin()
        first = self._episode.first
        return task, Opening(messages=first.messages if first else (), tools=first.tools if first else ())

    async def reply(self, message: Message) -> str:
        """The text of what the environment answers. Raises EnvironmentFault where no episode is under way."""
        episode = self._require()
        if episode.is_over:
            raise EnvironmentFault("the episode is over; call reset")
        answers = await episode.reply(message)
        ended = [message for answer in answers for message in answer.asked.observations]
        return join_texts([*ended, *(episode.first.messages if episode.first else ())])

    async def score(self) -> Scored:
        """The reward of the replies so far. Raises EnvironmentFault where the episode cannot be judged."""
        reward = choose_reward(await self._require().score())
        if isinstance(reward, Invalid):
            raise EnvironmentFault(f"the episode could not be judged: {reward.reason}")
        return reward

    async def close(self) -> None:
        """Free the episode, if there is one. Raises EnvironmentFault when that fails."""
        episode, self._episode = self._episode, None
        if episode is not None and (problem := await episode.close()):
            raise EnvironmentFault(problem)

    def _require(self) -> OutsideEpisode:
        if self._episode is None:
            raise EnvironmentFault("no episode is under way; call reset")
        return self._episode


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


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Tools as JSON: a name, a description and a schema each."""
    return json.dumps([[tool.name, tool.description, tool.parameters] for tool in tools])
