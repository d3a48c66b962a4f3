"""One episode over a row of a file: its messages and functions, one reply, the calls against the allowed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.core.types import Message, Reward, Scored, StopReason, Task
from turnwise.rewards.allowed_calls import count_fulfilled
from turnwise_worlds.tool_calls.arguments import ToolCallsArguments
from turnwise_worlds.tool_calls.environment import OneReplyEnvironment, read_calls
from turnwise_worlds.tool_calls.rows import to_allowed, to_spec


class RowCallsEnvironment(OneReplyEnvironment):
    """A request, the functions offered with it, one reply. Single use."""

    def __init__(self, chosen: ToolCallsArguments) -> None:
        super().__init__(chosen)
        self._task: Task | None = None

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return the row's messages; the tools are its functions' schemas."""
        self._task = task
        self.show(task, map(to_spec, task.payload["functions"]))
        return task.prompt, ()

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Return 1 for the right calls in any order (see `rewards.allowed_calls`), else 0; parts are `success`, the
        same value, and `fulfilled`: the share of wanted calls that the reply makes, or 1 or 0 if none is wanted.

        Text beside the calls is ignored. A reply with a malformed call, or cut off by a limit, is wrong, even if no
        call is wanted.
        """
        reply = self._reply
        made = read_calls(reply.tool_calls) if reply is not None and not reply.tool_errors else None
        fulfilled, success = 0.0, False
        if made is not None and self._task is not None:
            wanted = to_allowed(self._task.payload["calls"], self._task.payload["functions"])
            count = count_fulfilled(wanted, made)
            success = count == len(wanted) == len(made)
            fulfilled = count / len(wanted) if wanted else float(success)
        return Scored.of(float(success), {"success": success, "fulfilled": fulfilled})
