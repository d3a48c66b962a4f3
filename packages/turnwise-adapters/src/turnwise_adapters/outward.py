"""Plays one task of a family at a time, for other packages' interfaces with reset and step.

An environment that asks in several conversations is played reply by reply: the first open request is shown, and the
next reply answers it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from turnwise.core.errors import EnvironmentFault
from turnwise.core.messages import to_plain_text
from turnwise.core.protocols import EnvironmentFamily, Opening, Split
from turnwise.core.types import Invalid, Message, Scored, Task, ToolCall, ToolSpec, text_message
from turnwise.serving.episode import OutsideEpisode, choose_reward


class OutwardEpisode:
    """An episode that can be opened again; every opening ends the previous one."""

    def __init__(self, family: EnvironmentFamily, *, split: Split, max_turns: int) -> None:
        """`max_turns` is the number of replies in a conversation after which an episode is truncated."""
        self._family, self._split, self._max_turns = family, split, max_turns
        self._episode: OutsideEpisode | None = None

    @property
    def num_replies(self) -> int:
        """Number of replies since the opening."""
        return self._episode.num_replies if self._episode else 0

    @property
    def is_done(self) -> bool:
        """Whether the environment ended the episode."""
        return self._episode is not None and self._episode.is_done

    @property
    def is_truncated(self) -> bool:
        """Whether it used up its replies without ending."""
        return self._episode is not None and self._episode.is_truncated

    @property
    def voice(self) -> dict[str, str]:
        """Who speaks next: role, conversation and tools; empty if there is one conversation, and at the end."""
        if self._episode is None or self._episode.is_single or not self._episode.wanted:
            return {}
        ask = self._episode.wanted[0]
        return {"role": ask.role, "conversation": ask.conversation, "tools": describe_tools(ask.tools)}

    async def open(self, index: int) -> tuple[Task, Opening]:
        """Open the split's task at `index`, which is also the episode's seed. Returns the task and the opening."""
        await self.close()
        task = self._family.task(self._split, index)
        environment = self._family.build_environment(task)
        self._episode = OutsideEpisode(environment, task, seed=index, max_turns=self._max_turns)
        await self._episode.begin()
        first = self._episode.first
        return task, Opening(messages=first.messages if first else (), tools=first.tools if first else ())

    async def reply(self, message: Message) -> str:
        """Send a reply and return the text of the environment's answer. Raises EnvironmentFault if no episode is
        open."""
        episode = self._require()
        if episode.is_over:
            raise EnvironmentFault("the episode is over; call reset")
        answers = await episode.reply(message)
        ended = [message for answer in answers for message in answer.asked.observations]
        return join_texts([*ended, *(episode.first.messages if episode.first else ())])

    async def score(self) -> Scored:
        """Return the reward of the replies so far. Raises EnvironmentFault if the episode cannot be judged."""
        reward = choose_reward(await self._require().score())
        if isinstance(reward, Invalid):
            raise EnvironmentFault(f"the episode could not be scored: {reward.reason}")
        return reward

    async def close(self) -> None:
        """Free the episode, if there is one. Raises EnvironmentFault if that fails."""
        episode, self._episode = self._episode, None
        if episode is not None and (problem := await episode.close()):
            raise EnvironmentFault(problem)

    def _require(self) -> OutsideEpisode:
        if self._episode is None:
            raise EnvironmentFault("no episode is running; call reset")
        return self._episode


def join_texts(messages: Sequence[Message]) -> str:
    """Join the texts of messages, which name their pictures, separated by empty lines."""
    return "\n\n".join(map(to_plain_text, messages))


def read_reply(action: str, number: int) -> Message:
    """Return the reply that a text means: `{"name": ..., "arguments": {...}}` calls a tool, any other text is a
    message.

    `number` makes call ids unique.
    """
    try:
        call = json.loads(action)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict) or set(call) != {"name", "arguments"} or not isinstance(call["name"], str):
        return text_message("assistant", action)
    return call_message(call["name"], call["arguments"], number)


def call_message(name: str, arguments: object, number: int) -> Message:
    """Return a reply that calls one tool; `number` makes call ids unique."""
    written = json.dumps(arguments, ensure_ascii=False)
    return text_message("assistant", "", tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=written),))


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Describe tools as JSON, each by name, description and schema."""
    return json.dumps([[tool.name, tool.description, tool.parameters] for tool in tools])
