"""The first messages of a run's environments, for the checks of a start: with a deadline, and every crash named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from turnwise.core.checked import to_asking
from turnwise.core.closing import close_environment
from turnwise.core.episodes import Asked
from turnwise.core.errors import ConfigError, DataError, EnvironmentFault, boundary
from turnwise.core.protocols import EnvironmentFamily, Opening, Split
from turnwise.core.types import Task
from turnwise.environments.draws import LeftOut, find_tasks, name_task, try_task

OPENING_TIMEOUT_S = 120.0
"""Seconds an environment has to open."""
NUM_OPENED = 3
"""First tasks of a split of which one must open: an environment may refuse single rows."""
_EMPTY: dict[Split, str] = {
    "train": "the training split is empty",
    "heldout": "the held-out split is empty; give environment.args.heldout_path a file with a question",
}


def take_task(family: EnvironmentFamily, split: Split, index: int, problem: str) -> Task:
    """A task of a split. Raises DataError saying `problem` past the end, EnvironmentFault naming the task and its row
    if the family crashes."""
    try:
        task = try_task(family, split, index)
    except IndexError as end:
        raise DataError(f"{problem} ({end})") from None
    if isinstance(task, LeftOut):
        raise EnvironmentFault(task.why)
    return task


def take_first(family: EnvironmentFamily) -> Task:
    """The first training task that can be made. Raises DataError for an empty split, EnvironmentFault if none can."""
    tasks = find_tasks(family, "train", 1)
    if not tasks:
        raise DataError(_EMPTY["train"])
    return tasks[0][1]


def to_opening(asked: Asked) -> Opening:
    """The first conversation that an environment opens. Raises EnvironmentFault if it opens none."""
    if not asked.asks:
        raise EnvironmentFault("the environment asks for no reply at the start")
    return Opening(messages=asked.asks[0].messages, tools=asked.asks[0].tools)


async def open_task(family: EnvironmentFamily, task: Task) -> Opening:
    """Open an episode and close it; what its first conversation opens with.

    Raises EnvironmentFault if the environment crashes, ConfigError if it does not open within its deadline.
    """
    try:
        async with asyncio.timeout(OPENING_TIMEOUT_S):
            with boundary(EnvironmentFault, f"environment {task.environment!r} for task {task.id}"):
                environment = to_asking(family.build_environment(task))
                try:
                    return to_opening(await environment.begin(task, seed=0))
                finally:
                    await close_environment(environment)
    except TimeoutError:  # the boundary has named any that the environment raised
        raise ConfigError(
            f"environment {task.environment!r} did not open task {task.id} within {OPENING_TIMEOUT_S:g} s; make its "
            "reset faster"
        ) from None


async def open_tasks(family: EnvironmentFamily, split: Split) -> AsyncIterator[tuple[int, Task, Opening]]:
    """Those of the first tasks of a split that open, with their indices: a row whose environment crashes is for the
    run to name and count.

    Raises DataError for an empty split, EnvironmentFault naming the first task if none opens, ConfigError as
    `open_task` does.
    """
    tasks = find_tasks(family, split, NUM_OPENED)
    if not tasks:
        raise DataError(_EMPTY[split])
    problem, num_opened = "", 0
    for index, task in tasks:
        try:
            opening = await open_task(family, task)
        except EnvironmentFault as fault:
            problem = problem or f"{name_task(family, split, index)}: {fault}"
            continue
        num_opened += 1
        yield index, task, opening
    if not num_opened:
        raise EnvironmentFault(f"{problem}; none of the first {len(tasks)} tasks opens, mend what it raises")


async def open_first(family: EnvironmentFamily, split: Split = "train") -> tuple[int, Task, Opening]:
    """The first of them. Raises as `open_tasks` does."""
    return await anext(open_tasks(family, split))
