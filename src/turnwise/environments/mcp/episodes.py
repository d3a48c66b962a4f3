"""Offers episodes of any family as tools of a Model Context Protocol server: open one, call its tools, submit an
answer.

The protocol's newer versions have no sessions, so an episode is named in every call: `open_episode` returns its name,
and every tool of the environment takes it as the argument `episode`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.episodes import Ask
from turnwise.core.errors import EnvironmentFault, TurnwiseError
from turnwise.core.messages import list_images, to_plain_text
from turnwise.core.protocols import EnvironmentFamily, GoldAnswers, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Invalid, Message, Reward, Task, ToolCall, ToolSpec, text_message
from turnwise.pictures.pixels import to_png
from turnwise.serving.desk import Desk
from turnwise.serving.episode import Answer, OutsideEpisode

EPISODE, CONVERSATION = "episode", "conversation"
"""The arguments that name the episode and, if an environment asks in several conversations, the conversation."""
OPEN, SUBMIT, REPLY = "open_episode", "submit_answer", "reply"
INSTRUCTIONS = (
    f"Call {OPEN} first: it returns a task and the name of its episode. Give that name to every tool. When you know "
    f"the answer, call {SUBMIT}, which ends the episode and returns the reward. Where {OPEN} returns asks instead, "
    f"several conversations are under way: answer each with a tool or {REPLY}, and name its conversation."
)


class EpisodeDesk:
    """Opens, plays and scores episodes of one family for any number of clients, as tools of MCP."""

    def __init__(
        self,
        family: EnvironmentFamily,
        *,
        split: Split,
        seed: int = 0,
        max_turns: int = 100,
        max_open: int = 64,
        timeout_s: float = 600.0,
    ) -> None:
        """`max_turns` replies in a conversation end an episode; opening more than `max_open` episodes closes the
        oldest; `timeout_s` limits one request."""
        self._family = family
        self._split: Split = split
        self._seed = seed
        self._timeout_s = timeout_s
        self._desk = Desk(max_open=max_open, timeout_s=timeout_s, max_turns=max_turns, replaces=True)
        self._tools: dict[str, ToolSpec] = {}
        self._has_single = self._has_several = False
        """Whether an episode with one conversation was opened, and one with several."""
        self._num_opened = 0

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return every tool as a JSON object of the protocol: `open_episode`, the environment's tools with the argument
        `episode`, and `submit_answer`, or `reply` if there are several conversations.

        The environment's tools are those of the split's first task and of every episode opened since.
        """
        if not self._has_single and not self._has_several:
            task = self._family.task(self._split, 0)
            seed = derive_seed(self._seed, "mcp", 0)
            episode = OutsideEpisode(self._family.build_environment(task), task, seed=seed)
            try:
                await episode.begin()
                self._learn(episode, episode.wanted)
            finally:
                await episode.close()
        opened = {
            "index": {"type": "integer", "minimum": 0, "description": "Number of the task; default: the next one."}
        }
        answer = {"answer": {"type": "string", "description": "The final answer."}}
        text = {"text": {"type": "string", "description": "What to say."}}
        submit = _tool(SUBMIT, "End the episode with an answer; returns the reward.", {**_NAMED, **answer})
        reply = _tool(REPLY, "Say something; returns what is asked next, or the rewards.", {**self._named, **text})
        return [
            _tool(OPEN, "Open an episode: returns its name, the task, and its tools.", opened, required=()),
            *(_with_episode(spec, self._named) for spec in self._tools.values()),
            *([submit] if self._has_single else []),
            *([reply] if self._has_several else []),
        ]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Make a call and return its result as a JSON object of the protocol; an error is a result marked as one."""
        try:
            if name == OPEN:
                return await self._open(arguments)
            return await self._play(name, dict(arguments))
        except (TurnwiseError, IndexError) as cause:
            return _text(str(cause), True)
        except TimeoutError:
            return _text(f"{name} took longer than {self._timeout_s:g} s", True)

    async def close(self) -> None:
        """Close every open episode."""
        await self._desk.close()

    async def _open(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Open an episode and show its task."""
        index = arguments.get("index")
        if index is None:
            index = self._num_opened
        if isinstance(index, bool) or not isinstance(index, int):
            raise EnvironmentFault(f"index={index!r} is not a task number; pass an integer of at least 0")
        task = self._family.task(self._split, index)
        self._num_opened += 1
        key, seed = f"e{self._num_opened}", derive_seed(self._seed, "mcp", index)
        async with self._desk.use(key, lambda: (self._family.build_environment(task), task), seed=seed) as episode:
            self._learn(episode, episode.wanted)
            if not episode.is_single:
                value: dict[str, Any] = {EPISODE: key, "asks": self._describe_asks(episode.wanted)}
                return _structured(value, shown=_list_shown(episode.wanted))
            [ask] = episode.wanted
            tools = [_with_episode(spec, _NAMED) for spec in ask.tools]
            return _structured({EPISODE: key, "task": _join(ask.messages), "tools": tools}, shown=ask.messages)

    async def _play(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Step an episode with a call or an answer."""
        key = str(arguments.pop(EPISODE, ""))
        if key not in self._desk:
            raise EnvironmentFault(f"there is no open episode {key[:50]!r}; call {OPEN} and pass the name it returns")
        async with self._desk.use(key) as episode:
            conversation = None if episode.is_single else arguments.pop(CONVERSATION, None)
            reply = self._read_reply(name, arguments, episode)
            answers = await episode.reply(reply, None if conversation is None else str(conversation))
            self._learn(episode, episode.wanted)
            shown = _show_single(answers) if episode.is_single else self._show_all(answers)
            messages = _list_answers(answers)
            if not episode.is_over and not (name == SUBMIT and episode.is_single):
                failed = any(record.error is not None for each in answers for record in each.asked.tool_records)
                if episode.is_single:
                    return _text(shown["observation"], failed, shown=messages)
                return _structured(shown, failed=failed, shown=messages)
            try:
                rewards = {role: _describe(reward) for role, reward in (await episode.score()).items()}
            finally:
                await episode.close()
        told = next(iter(rewards.values())) if episode.is_single else {"rewards": rewards}
        return _structured({**told, **{what: value for what, value in shown.items() if value}}, shown=messages)

    def _read_reply(self, name: str, arguments: Mapping[str, Any], episode: OutsideEpisode) -> Message:
        """Return the reply that a call means."""
        if name == SUBMIT and episode.is_single:
            return self._answer(episode.task, str(arguments.get("answer", "")))
        if name == REPLY and not episode.is_single:
            return text_message("assistant", str(arguments.get("text", "")))
        call = ToolCall(id=f"call_{episode.num_replies}", name=name, arguments=json.dumps(arguments))
        return Message(role="assistant", content=(), tool_calls=(call,))

    def _answer(self, task: Task, answer: str) -> Message:
        """Return the final reply, in the family's own form if it has one."""
        if isinstance(self._family, GoldAnswers):
            return self._family.answer_reply(task, answer)
        return text_message("assistant", answer)

    def _show_all(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Show how conversations ended, and what is requested from now on."""
        ended = [(answer.ask.conversation, message) for answer in answers for message in answer.asked.observations]
        asks = [ask for answer in answers for ask in answer.asked.asks]
        return {
            "observations": [{CONVERSATION: name, "text": to_plain_text(message)} for name, message in ended],
            "asks": self._describe_asks(asks),
        }

    def _describe_asks(self, asks: Sequence[Ask]) -> list[dict[str, Any]]:
        return [
            {
                CONVERSATION: ask.conversation,
                "role": ask.role,
                "text": _join(ask.messages),
                "tools": [_with_episode(spec, self._named) for spec in ask.tools],
                **({"caller": ask.caller, "inherits": ask.inherits} if ask.caller is not None else {}),
            }
            for ask in asks
        ]

    @property
    def _named(self) -> Mapping[str, Any]:
        """The arguments that an environment's tool has besides its own."""
        return {**_NAMED, **_NAMED_CONVERSATION} if self._has_several else _NAMED

    def _learn(self, episode: OutsideEpisode, asks: Sequence[Ask]) -> None:
        self._has_single |= episode.is_single
        self._has_several |= not episode.is_single
        self._tools.update({spec.name: spec for ask in asks for spec in ask.tools})


_NAMED = {EPISODE: {"type": "string", "description": f"Name of the episode, from {OPEN}."}}
_NAMED_CONVERSATION = {
    CONVERSATION: {"type": "string", "description": "The conversation to reply in; default: the one asked first."}
}


def _tool(
    name: str, description: str, properties: Mapping[str, Any], *, required: Sequence[str] | None = None
) -> dict[str, Any]:
    """Build a tool of the protocol; None requires every argument except the conversation."""
    names = [each for each in properties if each != CONVERSATION] if required is None else list(required)
    schema = {"type": "object", "properties": dict(properties), "required": names}
    return {"name": name, "description": description, "inputSchema": schema}


def _with_episode(spec: ToolSpec, named: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a tool of the environment, with the episode's name as its first argument."""
    schema = dict(spec.parameters)
    schema["properties"] = {**named, **spec.properties}
    schema["required"] = [EPISODE, *spec.required]
    return {"name": spec.name, "description": spec.description, "inputSchema": {"type": "object", **schema}}


def _describe(reward: Reward) -> dict[str, Any]:
    if isinstance(reward, Invalid):
        return {"reward": None, "reason": reward.reason}
    return {"reward": reward.total, "parts": {part.name: part.value for part in reward.parts}}


def _show_single(answers: Sequence[Answer]) -> dict[str, str]:
    """Show the answer of an environment with one conversation: its continuation or its end."""
    return {"observation": _join(_list_answers(answers))}


def _list_answers(answers: Sequence[Answer]) -> list[Message]:
    """Return what was observed and what is asked next."""
    return [message for each in answers for message in (*each.asked.observations, *_list_shown(each.asked.asks))]


def _list_shown(asks: Sequence[Ask]) -> list[Message]:
    return [message for ask in asks for message in ask.messages]


def _join(messages: Sequence[Message]) -> str:
    """Return the texts of messages, which name their pictures."""
    return "\n".join(map(to_plain_text, messages))


def _structured(value: Mapping[str, Any], *, failed: bool = False, shown: Sequence[Message] = ()) -> dict[str, Any]:
    return {**_text(json.dumps(value, ensure_ascii=False), failed, shown=shown), "structuredContent": dict(value)}


def _text(text: str, is_error: bool, *, shown: Sequence[Message] = ()) -> dict[str, Any]:
    """Return a result with a text, followed by the pictures of the messages it was made of."""
    pictures = [
        {"type": "image", "data": base64.b64encode(to_png(part)).decode(), "mimeType": "image/png"}
        for part in list_images(shown)
    ]
    return {"content": [{"type": "text", "text": text}, *pictures], "isError": is_error}
