"""Tools offered by Verl-Tool's protocol: the sandbox's own, or those of an environment family."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from turnwise.building.families import build_family
from turnwise.config.run import RunConfig
from turnwise.core.checked import to_single
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.protocols import Environment, EnvironmentFamily, Split
from turnwise.core.types import Task
from turnwise.environments.registry import load_family
from turnwise.runs.openings import take_task
from turnwise_adapters.verl_tool.serving import ActionServer
from turnwise_adapters.verl_tool.toolbox import Toolbox
from turnwise_adapters.verl_tool.trajectories import Build, Trajectories

SANDBOX_TOOLS = ("python", "run_program", "bash", "read_file", "write_file")
SWEEP_S = 60.0
"""Seconds between two looks for idle trajectories."""

Source = RunConfig | str | Sequence[str]
"""A recipe, the name of an environment, or names of `SANDBOX_TOOLS`."""


def run_tool_server(
    source: Source, *, split: Split, port: int, timeout_s: float, level: str, show: Callable[[str], None]
) -> None:
    """Serve on loopback until interrupted or terminated; `show` gets the URL.

    An action may take `timeout_s`. `level` is the sandbox's for `SANDBOX_TOOLS`. Raises ConfigError when the family
    refuses its arguments, EnvironmentFault when the port is taken, SandboxError when the level cannot be had.
    """
    asyncio.run(_serve(source, split, port, timeout_s, level, show))


async def _serve(
    source: Source, split: Split, port: int, timeout_s: float, level: str, show: Callable[[str], None]
) -> None:
    async with AsyncExitStack() as stack:
        build = await _choose_build(source, split, timeout_s, level, stack)
        tools = await _list_tools(build)
        trajectories = Trajectories(build, timeout_s=timeout_s)
        stack.push_async_callback(trajectories.close)
        server = ActionServer(trajectories.observe, lambda: {"tools": tools, "num_trajectories": trajectories.num_open})
        stack.push_async_callback(server.close)
        show(await server.start(port))
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), SWEEP_S)
            await trajectories.sweep()


async def _choose_build(source: Source, split: Split, timeout_s: float, level: str, stack: AsyncExitStack) -> Build:
    """What opens a trajectory; a sandbox that it needs is closed with `stack`."""
    if isinstance(source, RunConfig):
        return from_family(build_family(source), split)
    if isinstance(source, str):
        return from_family(load_family(source, {}), split)
    from turnwise.tools.sandboxed import ask_sandbox
    from turnwise_sandbox.supervisor import LocalSandbox
    from turnwise_sandbox.types import Limits

    sandbox = LocalSandbox(level=level)
    stack.push_async_callback(sandbox.close)
    await ask_sandbox(sandbox.level())
    names, limits = tuple(source), Limits(wall_s=timeout_s / 2)
    task = Task(environment="toolbox", prompt=(), payload={})
    return lambda extra: (Toolbox(sandbox, names, limits), task)


def from_family(family: EnvironmentFamily, split: Split) -> Build:
    """Trajectories over a family's tasks: the extra field `index` says which task, 0 where there is none."""

    def build(extra: Mapping[str, Any]) -> tuple[Environment, Task]:
        index = extra.get("index", 0)
        if isinstance(index, bool) or not isinstance(index, int):
            raise EnvironmentFault(
                f"the extra field index={index!r:.40} is not a task number; pass an integer of at least 0"
            )
        task = take_task(family, split, index, f"split {split!r} has no task {index}; use a smaller index")
        return to_single(family.build_environment(task)), task

    return build


async def _list_tools(build: Build) -> list[str]:
    """Names of the tools of a trajectory's start. Raises ConfigError where there are none."""
    environment, task = build({})
    try:
        opening = await environment.reset(task, 0)
    finally:
        await environment.close()
    if not opening.tools:
        raise ConfigError(
            "the environment has no tools to serve; choose one that has tools, or name tools of the sandbox"
        )
    return [spec.name for spec in opening.tools]
