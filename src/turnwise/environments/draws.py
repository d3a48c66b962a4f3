"""Builds tasks of a family, some of whose rows may fail: these are named, left out and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnwise.core.errors import DataError, EnvironmentFault, ToolFailure, TurnwiseError, boundary
from turnwise.core.holding import holding
from turnwise.core.protocols import EnvironmentFamily, Split
from turnwise.core.returned import read_task
from turnwise.core.types import Task

COUNTED_FROM = 100
"""Number of tasks below which shares are computed as if there were this many: one bad row among the first few ends no
run."""
NUM_TRIED = 20
"""Number of tasks among which the first usable ones are sought at a start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A task that is left out."""

    index: int
    """Index of the task in its split."""
    why: str
    """Why it is left out, naming the task and its row."""


def name_task(family: EnvironmentFamily, split: Split, index: int) -> str:
    """Name the task by split and index, with file and line if it comes from a file."""
    place = None
    find: Callable[[Split, int], str | None] | None = getattr(family, "place", None)
    if find is not None:
        try:
            with boundary(EnvironmentFault, "place"):
                place = find(split, index)
        except (TurnwiseError, ToolFailure):
            pass  # naming the task must not fail
    return f"task {index} of split {split!r}" + (f" ({place})" if place else "")


def try_task(family: EnvironmentFamily, split: Split, index: int) -> Task | LeftOut:
    """Return the task, or why it cannot be built, whatever its family raises. Raises IndexError past the end."""
    try:
        with boundary(EnvironmentFault, type(family).__name__), holding(f"{type(family).__name__}.task"):
            return read_task(family.task(split, index), f"{type(family).__name__}.task")
    except (TurnwiseError, ToolFailure) as cause:
        if isinstance(cause.__cause__, IndexError):
            raise IndexError(str(cause.__cause__)) from None
        return LeftOut(index=index, why=f"{name_task(family, split, index)}: {cause}")


def find_tasks(family: EnvironmentFamily, split: Split, count: int) -> list[tuple[int, Task]]:
    """Return the first `count` tasks that can be built, with their indices; fewer if the split ends.

    Raises EnvironmentFault naming the first that cannot, if too few of the first `NUM_TRIED` can be built.
    """
    found: list[tuple[int, Task]] = []
    failed: LeftOut | None = None
    for index in range(count + NUM_TRIED):
        try:
            task = try_task(family, split, index)
        except IndexError:
            break
        if isinstance(task, LeftOut):
            failed = failed or task
        else:
            found.append((index, task))
        if len(found) == count:
            break
    if failed is not None and not found:
        raise EnvironmentFault(failed.why)
    return found


def check_left_out(num_left_out: int, num_tasks: int, max_share: float, example: str) -> None:
    """Raise DataError naming the example if more than `max_share` of the tasks is left out."""
    if num_left_out > max_share * max(num_tasks, COUNTED_FROM):
        raise DataError(
            f"{num_left_out} of {num_tasks} tasks cannot be played, more than environment.max_left_out={max_share:g} "
            f"allows (checked after {COUNTED_FROM} tasks); the last one: {example}"
        )
