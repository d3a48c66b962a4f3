"""Episodes of any family as tools of a Model Context Protocol server: open one, call its tools, submit an answer.

The protocol's newer versions have no sessions, so an episode is named in every call: `open_episode` returns its name,
and every tool of the environment takes it as the argument `episode`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.core.checked import judge, to_single
from turnwise.core.errors import EnvironmentFault, TurnwiseError, boundary
from turnwise.core.protocols import Environment, EnvironmentFamily, GoldAnswers, Opening, Split
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Invalid, Message, Reward, StopReason, Task, ToolCall, ToolSpec, text_message

EPISODE = "episode"
"""The argument that names the episode."""
OPEN, SUBMIT = "open_episode", "submit_answer"
CLOSE_S = 30.0
"""Seconds that closing an environment may take."""
INSTRUCTIONS = (
    f"Call {OPEN} first: it returns a task and the name of its episode. Give that name to every tool. When you know "
    f"the answer, call {SUBMIT}, which ends the episode and returns the reward."
)


@dataclass(slots=True, kw_only=True, eq=False)
class _Episode:
    task: Task
    environment: Environment
    replies: list[Message] = field(default_factory=list)


class EpisodeDesk:
    """Opens, plays and scores episodes of one family for any number of clients."""

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
        """`max_turns` replies end an episode; opening more than `max_open` closes the oldest; `timeout_s` is what one
        request may take."""
        self._family = family
        self._split: Split = split
        self._seed = seed
        self._max_turns = max_turns
        self._max_open = max_open
        self._timeout_s = timeout_s
        self._episodes: dict[str, _Episode] = {}
        self._tools: dict[str, ToolSpec] = {}
        self._num_opened = 0

    async def list_tools(self) -> list[dict[str, Any]]:
        """Every tool as a JSON object of the protocol: `open_episode`, the environment's tools with the argument
        `episode`, `submit_answer`.

        The environment's are those of the split's first task and of every episode opened since.
        """
        if not self._tools:
            environment, opening = await self._reset(self._family.task(self._split, 0), 0)
            await close_environment(environment)
            self._learn(opening)
        opened = {
            "index": {"type": "integer", "minimum": 0, "description": "Number of the task; default: the next one."}
        }
        answered = {"answer": {"type": "string", "description": "The final answer."}}
        return [
            _tool(OPEN, "Open an episode: returns its name, the task, and its tools.", opened, []),
            *(_with_episode(spec) for spec in self._tools.values()),
            _tool(
                SUBMIT,
                "End the episode with an answer; returns the reward.",
                {**_NAMED, **answered},
                [EPISODE, "answer"],
            ),
        ]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a call as a JSON object of the protocol; what went wrong is a result marked as an error."""
        try:
            async with asyncio.timeout(self._timeout_s):
                if name == OPEN:
                    return _structured(await self._open(arguments))
                return await self._play(name, dict(arguments))
        except TimeoutError:
            return _error(f"{name} took longer than {self._timeout_s:g} s")
        except (TurnwiseError, IndexError) as cause:
            return _error(str(cause))

    async def close(self) -> None:
        """Close every open episode."""
        episodes, self._episodes = list(self._episodes.values()), {}
        await asyncio.gather(*(close_environment(episode.environment) for episode in episodes))

    async def _open(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        index = arguments.get("index")
        if index is None:
            index = self._num_opened
        if isinstance(index, bool) or not isinstance(index, int):
            raise EnvironmentFault(f"index={index!r} is no number of a task; give an integer from 0")
        task = self._family.task(self._split, index)
        environment, opening = await self._reset(task, index)
        self._num_opened += 1
        name = f"e{self._num_opened}"
        self._episodes[name] = _Episode(task=task, environment=environment)
        if len(self._episodes) > self._max_open:
            oldest = self._episodes.pop(next(iter(self._episodes)))
            await close_environment(oldest.environment)
        self._learn(opening)
        return {
            EPISODE: name,
            "task": "\n".join(message.text for message in opening.messages),
            "tools": [_with_episode(spec) for spec in opening.tools],
        }

    async def _play(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Step an episode by a call or an answer."""
        named = str(arguments.pop(EPISODE, ""))
        episode = self._episodes.get(named)
        if episode is None:
            raise EnvironmentFault(f"there is no open episode {named[:50]!r}; call {OPEN} and give the name it returns")
        if name == SUBMIT:
            reply = self._answer(episode.task, str(arguments.get("answer", "")))
        else:
            call = ToolCall(id=f"call_{len(episode.replies)}", name=name, arguments=json.dumps(arguments))
            reply = Message(role="assistant", content=(), tool_calls=(call,))
        episode.replies.append(reply)
        try:
            with boundary(EnvironmentFault, f"step of task {episode.task.id}"):
                result = await episode.environment.step(reply)
        except BaseException:
            await self._end(named)
            raise
        text = "\n".join(message.text for message in result.observations)
        is_cut = not result.done and (name == SUBMIT or len(episode.replies) >= self._max_turns)
        if not result.done and not is_cut:
            failed = any(record.error is not None for record in result.tool_records)
            return {"content": [{"type": "text", "text": text}], "isError": failed}
        try:
            with boundary(EnvironmentFault, f"score of task {episode.task.id}"):
                stop = StopReason.MAX_TURNS if is_cut else StopReason.DONE
                reward = await judge(episode.environment, episode.replies, stop)
        finally:
            await self._end(named)
        return _structured({**_describe(reward), **({"observation": text} if text else {})})

    def _answer(self, task: Task, answer: str) -> Message:
        """The final reply: in the family's own form where it has one."""
        if isinstance(self._family, GoldAnswers):
            return self._family.answer_reply(task, answer)
        return text_message("assistant", answer)

    async def _reset(self, task: Task, index: int) -> tuple[Environment, Opening]:
        environment = to_single(self._family.build_environment(task))
        try:
            with boundary(EnvironmentFault, f"reset of task {task.id}"):
                return environment, await environment.reset(task, derive_seed(self._seed, "mcp", index))
        except BaseException:
            await close_environment(environment)
            raise

    async def _end(self, name: str) -> None:
        episode = self._episodes.pop(name, None)
        if episode is not None:
            await close_environment(episode.environment)

    def _learn(self, opening: Opening) -> None:
        self._tools.update({spec.name: spec for spec in opening.tools})


async def close_environment(environment: Environment) -> None:
    """Close an environment within `CLOSE_S`, whatever it raises."""
    closing = asyncio.ensure_future(environment.close())
    await asyncio.wait({closing}, timeout=CLOSE_S)
    if not closing.done():
        closing.cancel()
    elif not closing.cancelled():
        closing.exception()


_NAMED = {EPISODE: {"type": "string", "description": f"Name of the episode, from {OPEN}."}}


def _tool(name: str, description: str, properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema}


def _with_episode(spec: ToolSpec) -> dict[str, Any]:
    """A tool of the environment, with the name of the episode as its first argument."""
    schema = dict(spec.parameters)
    schema["properties"] = {**_NAMED, **spec.properties}
    schema["required"] = [EPISODE, *spec.required]
    return {"name": spec.name, "description": spec.description, "inputSchema": {"type": "object", **schema}}


def _describe(reward: Reward) -> dict[str, Any]:
    if isinstance(reward, Invalid):
        return {"reward": None, "reason": reward.reason}
    return {"reward": reward.total, "parts": {part.name: part.value for part in reward.parts}}


def _structured(value: Mapping[str, Any]) -> dict[str, Any]:
    text = json.dumps(value, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": dict(value), "isError": False}


def _error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}
