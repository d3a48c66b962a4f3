"""The environment on which most families build: typed Python functions are the tools, messages are input and output.

The environment answers calls with their results, and malformed calls with an error. The episode ends when a reply has
no call of either sort, or when a tool sets `done`.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MethodType
from typing import Literal, Self

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.judging import EpisodeJudges
from turnwise.core.messages import identify, without_pixels
from turnwise.core.protocols import Opening, StepResult
from turnwise.core.returned import read_messages, read_truth, show
from turnwise.core.threads import OwnThread, run_method
from turnwise.core.types import Message, Reward, StopReason, Task, TextPart, ToolCall, ToolRecord, text_message
from turnwise.tools.tool import Tool, run_tool, to_tool


class ToolEnvironment:
    """Implements `core.protocols.Environment`.

    Override `setup` and `score`, and if needed `invalid_reply`, `is_failure` and `teardown`. `setup`, `score`,
    `teardown` and tools may be plain functions: all of them run in the episode's one thread. Single use: raises
    `EnvironmentFault` if it is reset twice, or stepped before `reset` or after the end.
    """

    def __init__(self, *, tool_timeout_s: float = 10.0, max_observation_chars: int = 4000) -> None:
        """Sets the seconds that one tool call may take, and how many characters of its result the model sees."""
        self._tool_timeout_s = tool_timeout_s
        self._max_observation_chars = max_observation_chars
        self._tools: dict[str, Tool] = {}
        self._stage: Literal["new", "open", "over", "closed"] = "new"
        self.tool_records: list[ToolRecord] = []
        """Every completed call of the episode, in order."""
        self.done = False
        """Set by a tool to end the episode: the model sees no answer, and further calls of the reply do not run."""
        self.judges = EpisodeJudges({})
        """The judges that `score` may ask: `(await self.judges.ask(NAME, TEXT, rubric=RUBRIC)).score`."""
        self.thread = OwnThread()
        """The thread in which the episode's plain functions run, one after the other."""

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the first messages and the tool functions of one episode. All randomness must come from `seed`."""
        raise NotImplementedError(f"{type(self).__name__} must define setup")

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Judge the episode from its state and the replies."""
        raise NotImplementedError(f"{type(self).__name__} must define score")

    def invalid_reply(self, message: Message) -> Message:
        """Return the message about a reply with malformed calls: a tool message without `tool_call_id`."""
        return text_message("tool", "error: " + "; ".join(error.message for error in message.tool_errors))

    async def teardown(self) -> None:
        """Free what `setup` took. Also called if `setup` failed half-way."""

    def use_judges(self, judges: EpisodeJudges) -> None:
        """See `JudgedEnvironment`."""
        self.judges = judges

    async def reset(self, task: Task, seed: int) -> Opening:
        """See `Environment.reset`. Raises ConfigError if a function cannot be a tool or two have the same name."""
        if self._stage != "new":
            raise EnvironmentFault(
                f"{type(self).__name__} was reset twice; environments are single-use: build a new one"
            )
        self._stage = "over"  # until setup has succeeded there is nothing to step
        opened = await run_method(self.setup, task, seed, thread=self.thread)
        where = f"{type(self).__name__}.setup"
        if not isinstance(opened, tuple | list) or len(opened) != 2:
            raise EnvironmentFault(f"{where} returned {show(opened)}; return the first messages and the tool functions")
        messages = read_messages(opened[0], f"the messages of {where}")
        self.offer(_read_functions(opened[1], where))
        self._stage = "open"
        return Opening(messages=messages, tools=tuple(tool.spec for tool in self._tools.values()))

    def offer(self, functions: Sequence[Callable[..., object]]) -> None:
        """Add these functions to the episode's tools. Raises ConfigError as `reset` does."""
        for tool in map(to_tool, functions):
            if tool.spec.name in self._tools:
                raise ConfigError(
                    f"{type(self).__name__} has two tools named {tool.spec.name!r}; rename one of the functions"
                )
            self._tools[tool.spec.name] = tool

    async def step(self, message: Message) -> StepResult:
        """See `Environment.step`.

        Calls run one after the other; raises ToolTimeout or EnvironmentFault as `run_tool` does.
        """
        if self._stage != "open":
            when = "before reset" if self._stage == "new" else "after its episode ended"
            raise EnvironmentFault(
                f"{type(self).__name__} was stepped {when}; build a new environment, reset it, and step until done"
            )
        if not message.tool_calls and not message.tool_errors:
            self._stage = "over"
            return StepResult(observations=(), done=True)
        records: list[ToolRecord] = []
        observations: list[Message] = []
        for call in message.tool_calls:
            record = await self._call(call)
            observations.append(_answer(record))
            records.append(replace(record, content=without_pixels(observations[-1]).content if record.content else ()))
            self.tool_records.append(records[-1])
            if read_truth(self.done, f"{type(self).__name__}.done"):
                self._stage = "over"
                return StepResult(observations=(), done=True, tool_records=tuple(records))
        if message.tool_errors:
            observations.append(self.invalid_reply(message))
        return StepResult(observations=tuple(observations), done=False, tool_records=tuple(records))

    def copy_episode(self, *, with_tools: bool = True) -> Self:
        """Return a second environment in the state of this one, for the `fork` of a subclass whose attributes are that
        state.

        The copy has its own tools, or none until `offer` if `with_tools` is false. Attributes are shared: the subclass
        must copy what an episode changes in place, besides `tool_records`. Raises EnvironmentFault if no episode is
        open, or if a tool to copy belongs to another object, whose state would be shared.
        """
        if self._stage != "open":
            raise EnvironmentFault(
                f"{type(self).__name__} was forked outside an open episode; fork it after reset and before the end"
            )
        twin = copy.copy(self)
        twin.tool_records = list(self.tool_records)
        twin._tools, twin.thread = {}, OwnThread()
        for name, tool in self._tools.items() if with_tools else ():
            if not isinstance(tool.function, MethodType) or tool.function.__self__ is not self:
                raise EnvironmentFault(
                    f"tool {name!r} of {type(self).__name__} is not one of its methods, so two episodes would share "
                    "its state; define fork without copy_episode"
                )
            twin._tools[name] = replace(tool, function=MethodType(tool.function.__func__, twin))
        return twin

    async def _call(self, call: ToolCall) -> ToolRecord:
        tool = self._tools.get(call.name)
        if tool is None:
            text = f"error: there is no tool {call.name[:100]!r}; known tools: {', '.join(self._tools) or 'none'}"
            return ToolRecord(call=call, observation=text, error=text, seconds=0.0)
        record = await run_tool(
            tool,
            call,
            timeout_s=self._tool_timeout_s,
            max_chars=self._max_observation_chars,
            thread=self.thread,
        )
        is_failure = record.error is None and self.is_failure(record)
        return replace(record, error=record.observation) if is_failure else record

    def is_failure(self, record: ToolRecord) -> bool:
        """Return whether an answer reports a failure, such as a failing test: its call then counts as an error, so that
        evaluations count how many episodes recover from one."""
        return False

    async def close(self) -> None:
        """See `Environment.close`. A second call does nothing."""
        if self._stage != "closed":
            self._stage = "closed"
            try:
                if inspect.iscoroutinefunction(self.teardown) or not self.thread.is_busy:
                    await run_method(self.teardown, thread=self.thread)
            finally:
                self.thread.free()


def _answer(record: ToolRecord) -> Message:
    content = record.content or (TextPart(text=record.observation),)
    return Message(role="tool", content=content, tool_call_id=record.call.id, name=record.call.name)


def _read_functions(functions: object, where: str) -> list[Callable[..., object]]:
    if isinstance(functions, str | bytes | Mapping) or not isinstance(functions, Iterable):
        raise EnvironmentFault(f"the tools of {where} are {show(functions)}; return a list of functions")
    read = list(functions)
    for function in read:
        if not callable(function):
            raise EnvironmentFault(f"the tools of {where} have {show(function)}; return functions")
    return read


def hash_calls(task_id: str, records: Sequence[ToolRecord]) -> str:
    """Return 16 hexadecimal digits of the task and every call with its answer: the `state_hash` of environments with
    exactly this state."""
    read = [
        (record.call.name, record.call.arguments, identify(record.content) if record.content else record.observation)
        for record in records
    ]
    return hashlib.sha256(json.dumps([task_id, read]).encode()).hexdigest()[:16]
