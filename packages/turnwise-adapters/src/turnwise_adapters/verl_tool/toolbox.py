"""The sandbox's tools alone: an environment without a task, for clients with their own tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnwise.core.types import Invalid, Message, Reward, StopReason, Task
from turnwise.environments.tool_environment import ToolEnvironment
from turnwise.tools.sandboxed import SandboxTools
from turnwise_sandbox.types import Limits, Sandbox

CALL_MARGIN_S = 30.0
"""Seconds that a call may wait for a place in the sandbox, in addition to the seconds of its code."""


class Toolbox(ToolEnvironment):
    """One trajectory's sandbox tools: its live sessions, their variables and files. Single use."""

    def __init__(self, sandbox: Sandbox, names: Sequence[str], limits: Limits) -> None:
        """`names` are those of `SandboxTools`, which raises ConfigError for an unknown one at `reset`."""
        super().__init__(tool_timeout_s=limits.wall_s + CALL_MARGIN_S)
        self._sandbox = sandbox
        self._names = tuple(names)
        self._limits = limits
        self._sandboxed: SandboxTools | None = None

    async def setup(self, task: Task, seed: int) -> tuple[Sequence[Message], Sequence[Callable[..., object]]]:
        """Return no messages, and the tools by name."""
        self._sandboxed = SandboxTools(self._sandbox, limits=self._limits, seed=seed)
        return (), self._sandboxed.functions(self._names)

    async def score(self, replies: Sequence[Message], stop: StopReason) -> Reward:
        """Always Invalid: the client, who has the task, judges."""
        return Invalid(reason="a toolbox has no task", retryable=False)

    async def teardown(self) -> None:
        """End the live sessions."""
        if self._sandboxed is not None:
            await self._sandboxed.close()
