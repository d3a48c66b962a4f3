"""One episode over servers' tools: the row's question, the calls and the reward."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, ToolTimeout
from turnwise.core.types import Invalid, Message, Part, Reward, RewardPart, Scored, StopReason, Task, ToolRecord
from turnwise.environments.mcp.arguments import ServedArguments
from turnwise.environments.mcp.connections import Connection, MakeSessions, SharedConnections, connect
from turnwise.environments.mcp.rows import Row, from_payload
from turnwise.environments.tool_environment import ToolEnvironment, hash_calls
from turnwise.rewards.answers import AnswerCase, exact_match, f1, final_answer
from turnwise.rewards.guard import score_guarded
from turnwise.tools.mcp.results import ServerTool, hide_parameters, to_seen, to_text
from turnwise.tools.tool import Tool

RowReward = Callable[[Mapping[str, Any], Sequence[Message], Sequence[ToolRecord]], Any]
"""A custom reward from the row as in the file, the replies and the tool records: a number, or a Reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings shared by all episodes of a family."""

    chosen: ServedArguments
    make_sessions: MakeSessions
    shared: SharedConnections | None
    """Shared connections; None opens a connection for each episode."""
    reward: RowReward | None
    """The custom reward; None if a built-in reward or a tool judges."""


class McpEnvironment(ToolEnvironment):
    """A question with the tools of servers. Single use."""

    def __init__(self, rules: Rules) -> None:
        """See `Rules`."""
        chosen = rules.chosen
        super().__init__(tool_timeout_s=chosen.tool_timeout_s, max_observation_chars=chosen.max_observation_chars)
        self.scores_from_records = chosen.reward != "tool"
        """An audit can recompute the reward without the server, unless one of its tools judges."""
        self._rules = rules
        self._connection: Connection | None = None
        self._row = Row(question="")
        self._task_id = ""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the question and the servers' tools, after connecting and making the row's `setup` calls."""
        chosen = self._rules.chosen
        self._row, self._task_id = from_payload(task.payload), task.id
        shared = self._rules.shared
        self._connection = await (
            shared.acquire() if shared else connect(self._rules.make_sessions, chosen.connect_timeout_s)
        )
        for name, arguments in self._row.setup:
            await self._call_hidden(name, arguments, "setup")
        for tool in choose_tools(self._connection, chosen):
            bound = self._bound(tool)
            spec = hide_parameters(tool.spec, bound) if bound else tool.spec
            self._tools[spec.name] = Tool(spec=spec, function=partial(self._answer, tool))
        return task.prompt, ()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return the chosen reward as the total, with parts `success` (1 or 0) and, if the row has answers, `f1`.

        Success is the right answer if the row has answers, else a reward of 1 or more. Invalid if the reward cannot be
        computed; raises EnvironmentFault if the judging tool fails.
        """
        rule = self._rules.chosen.normalize
        case = AnswerCase(replies=tuple(replies), golds=tuple(self._row.answers), stop=stop, normalize=rule)
        answer = final_answer(case)
        parts: dict[str, float] = {}
        if case.golds:
            parts = {
                "success": 0.0 if answer is None else exact_match(answer, case.golds, rule),
                "f1": 0.0 if answer is None else f1(answer, case.golds, rule),
            }
        reward = await self._judge(answer, parts, replies)
        if isinstance(reward, Invalid):
            return reward
        parts.setdefault("success", float(reward.total >= 1))
        given = {part.name for part in reward.parts}
        added = tuple(RewardPart(name=name, value=value) for name, value in parts.items() if name not in given)
        return replace(reward, parts=(*reward.parts, *added))

    async def _judge(self, answer: str | None, parts: Mapping[str, float], replies: Sequence[Message]) -> Reward:
        chosen, judge = self._rules.chosen, self._rules.reward
        if judge is not None:
            row = self._row.model_dump(exclude_unset=True)
            return await score_guarded(lambda: judge(row, replies, self.tool_records), chosen.tool_timeout_s)
        if chosen.reward != "tool":
            return Scored(total=parts["success" if chosen.reward == "exact_match" else "f1"])
        result = await self._call_hidden(chosen.check_tool, {**self._row.check, "answer": answer or ""}, "check_tool")
        return Scored(total=_read_number(result, chosen.check_tool))

    async def teardown(self) -> None:
        """End this episode's sessions, or its use of the shared ones."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await (self._rules.shared.release(connection) if self._rules.shared else connection.close())

    def state_hash(self) -> str:
        """Return 16 hexadecimal digits of the task and every call with its answer. Equal states have equal hashes."""
        return hash_calls(self._task_id, self.tool_records)

    def _bound(self, tool: ServerTool) -> dict[str, Any]:
        """Return the row's values for a tool's parameters."""
        return {key: value for key, value in self._row.bind.items() if key in tool.spec.properties}

    async def _answer(self, tool: ServerTool, /, **arguments: Any) -> str | tuple[Part, ...]:
        """Return the answer to the model's call of a tool. Raises ToolFailure for a parameter that the model was not
        shown, PictureError for an image that cannot be read."""
        assert self._connection is not None
        bound = self._bound(tool)
        if taken := [key for key in arguments if key in bound]:
            shown = ", ".join(key for key in tool.spec.properties if key not in bound) or "no arguments"
            raise ToolFailure(f"{tool.spec.name} takes {shown}; unknown: {', '.join(taken)}")
        try:
            result = await self._connection.call(tool, {**arguments, **bound})
            if not self._rules.chosen.show_images:
                return to_text(result)
            return to_seen(result, f"the result of tool {tool.name!r} of server {tool.server!r}")
        finally:
            self.done = self._connection.is_over

    async def _call_hidden(self, name: str, arguments: Mapping[str, Any], role: str) -> dict[str, Any]:
        """Make a call that the model does not see. Raises EnvironmentFault if the tool refuses, ToolTimeout if it is
        late."""
        connection = self._connection
        assert connection is not None
        tool = connection.find(name)
        if tool is None:
            names = ", ".join(tool.spec.name for tool in connection.tools)
            raise ConfigError(f"{role} is the tool {name!r}, which no server has; use one of {names}")
        seconds = self._rules.chosen.tool_timeout_s
        try:
            async with asyncio.timeout(seconds):
                return await connection.call(tool, {**self._bound(tool), **arguments})
        except TimeoutError:
            raise ToolTimeout(
                f"{role}: tool {name!r} of server {tool.server!r} ran longer than {seconds:g} s; make it faster or "
                "raise environment.tool_timeout_s"
            ) from None
        except ToolFailure as refusal:
            raise EnvironmentFault(f"{role}: tool {name!r} refused {dict(arguments)!r:.200}: {refusal}") from None


def choose_tools(connection: Connection, chosen: ServedArguments) -> list[ServerTool]:
    """Return the tools that the model sees. Raises ConfigError if `tools` names one that no server has."""
    if chosen.tools is None:
        judge = connection.find(chosen.check_tool)
        return [tool for tool in connection.tools if tool is not judge]
    named = []
    for name in chosen.tools:
        tool = connection.find(name)
        if tool is None:
            names = ", ".join(tool.spec.name for tool in connection.tools)
            raise ConfigError(f"tools includes {name!r}, which no server has; choose from {names}")
        named.append(tool)
    return [tool for tool in connection.tools if tool in named]


def _read_number(result: Mapping[str, Any], tool: str) -> float:
    """Read the number in a result: structured `{"result": x}` or `{"score": x}`, or the text. True is 1, False 0."""
    structured = result.get("structuredContent") or {}
    value: Any = structured.get("result", structured.get("score"))
    if value is None:
        text = to_text(result).strip()
        value = {"true": 1.0, "false": 0.0}.get(text.lower(), text)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise EnvironmentFault(f"check_tool {tool!r} answered {value!r:.100}, which is not a finite number; return one")
    return number
