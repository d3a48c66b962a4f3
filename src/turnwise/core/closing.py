"""Closing with a deadline: an environment or engine that hangs at the end of an episode does not delay anything
else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from turnwise.core.checked import to_asking
from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import EnvironmentFault, TurnwiseError, boundary
from turnwise.core.protocols import Environment

CLOSE_S = 30.0
"""Seconds allowed for closing an environment, releasing a session or obeying a cancellation."""


async def finish_within(
    seconds: float, work: Callable[[], Awaitable[object]], error: type[TurnwiseError], what: str
) -> str | None:
    """Call and await `work`; returns what went wrong, None if nothing. After `seconds` the work is cancelled and
    abandoned.

    An exception from `work` that is not a Turnwise error is reported as `error`.
    """

    async def guarded() -> None:
        with boundary(error, what):
            await work()

    task = asyncio.ensure_future(guarded())
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(discard_result)
    if not task.done():
        return f"{error.__name__}: {what}: not done after {seconds:g} s"
    if task.cancelled():
        return f"{error.__name__}: {what}: it was cancelled"
    cause = task.exception()
    return None if cause is None else f"{type(cause).__name__}: {cause}"


def discard_result(task: asyncio.Future[Any]) -> None:
    """Read the exception of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


async def close_environment(environment: Environment | AskingEnvironment, seconds: float = CLOSE_S) -> str | None:
    """Close within `seconds` and return what went wrong, None if nothing."""
    closed = to_asking(environment)
    return await finish_within(seconds, lambda: closed.close(), EnvironmentFault, "closing the environment")
