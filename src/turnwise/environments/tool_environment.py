"""The environment most families build on: typed Python functions are the tools, messages go in and out.

A reply with malformed calls gets an observation that says so; a reply with calls gets their results; a reply with neither
ends the episode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.core.errors import EnvironmentFault
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.types import Message, Reward, StopReason, Task, ToolCall, ToolRecord, text_message
from turnwise.tools.tool import Tool, run_tool, to_tool


class ToolEnvironment:
    """Implements `core.protocols.Environment`. Override `setup` and `score`; `invalid_reply` and `teardown` where needed."""

    def __init__(self, *, tool_timeout_s: float = 10.0, max_observation_chars: int = 4000) -> None:
        self._tool_timeout_s = tool_timeout_s
        self._max_observation_chars = max_observation_chars
        self._tools: dict[str, Tool] | None = None
        self._over = False
        self.tool_records: list[ToolRecord] = []

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """The first messages and the tool functions of one episode. Everything random comes from `seed`."""
        raise NotImplementedError(f"{type(self).__name__} must define setup")

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Judge the episode from its state and the replies."""
        raise NotImplementedError(f"{type(self).__name__} must define score")

    def invalid_reply(self, message: Message) -> Message:
        """What the model is told about a reply with malformed calls."""
        return text_message("tool", "error: " + "; ".join(error.message for error in message.tool_errors))

    async def teardown(self) -> None:
        """Free what `setup` took."""

    async def reset(self, task: Task, seed: int) -> Opening:
        """See `Environment.reset`. Raises EnvironmentFault when used twice."""
        if self._tools is not None:
            raise EnvironmentFault(f"{type(self).__name__} was reset twice; environments are single use, build a new one")
        messages, functions = await self.setup(task, seed)
        self._tools = {tool.spec.name: tool for tool in map(to_tool, functions)}
        return Opening(messages=tuple(messages), tools=tuple(tool.spec for tool in self._tools.values()))

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`. Raises EnvironmentFault before `reset` and after the end."""
        if self._tools is None or self._over:
            when = "before reset" if self._tools is None else "after the episode ended"
            raise EnvironmentFault(f"{type(self).__name__} was stepped {when}")
        if message.tool_errors:
            return StepResult(observations=(self.invalid_reply(message),), done=False)
        if not message.tool_calls:
            self._over = True
            return StepResult(observations=(), done=True)
        records = [await self._call(call) for call in message.tool_calls]
        self.tool_records += records
        observations = tuple(text_message("tool", r.observation, tool_call_id=r.call.id, name=r.call.name) for r in records)
        return StepResult(observations=observations, done=False, tool_records=tuple(records))

    async def _call(self, call: ToolCall) -> ToolRecord:
        tools = self._tools or {}
        tool = tools.get(call.name)
        if tool is None:
            text = f"error: there is no tool {call.name!r:.100}; known tools: {', '.join(tools) or 'none'}"
            return ToolRecord(call=call, observation=text, error=text, seconds=0.0)
        return await run_tool(tool, call, timeout_s=self._tool_timeout_s, max_chars=self._max_observation_chars)

    async def close(self) -> None:
        """See `Environment.close`."""
        self._over = True
        await self.teardown()
