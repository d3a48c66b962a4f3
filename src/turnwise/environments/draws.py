"""Tasks of a family that may fail at some of its rows: named by row, left out, and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnwise.core.errors import DataError, EnvironmentFault, ToolFailure, TurnwiseError, boundary
from turnwise.core.protocols import EnvironmentFamily, Split
from turnwise.core.types import Task

COUNTED_FROM = 100
"""Tasks below which a share is one of this many: one bad row among the first few ends no run."""
NUM_TRIED = 20
"""Tasks among which the first ones that can be made are looked for at a start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A task that is not played."""

    index: int
    """In its split."""
    why: str
    """Names the task, its row and what is wrong."""


def name_task(family: EnvironmentFamily, split: Split, index: int) -> str:
    """The task by split and index, with file and line where it comes from a file."""
    place = None
    find: Callable[[Split, int], str | None] | None = getattr(family, "place", None)
    if find is not None:
        try:
            with boundary(EnvironmentFault, "place"):
                place = find(split, index)
        except (TurnwiseError, ToolFailure):
            pass  # what names the task is no reason to fail
    return f"task {index} of split {split!r}" + (f" ({place})" if place else "")


def try_task(family: EnvironmentFamily, split: Split, index: int) -> Task | LeftOut:
    """The task, or why it cannot be made, whatever its family raises. Raises IndexError past the end."""
    try:
        with boundary(EnvironmentFault, type(family).__name__):
            return family.task(split, index)
    except (TurnwiseError, ToolFailure) as cause:
        if isinstance(cause.__cause__, IndexError):
            raise IndexError(str(cause.__cause__)) from None
        return LeftOut(index=index, why=f"{name_task(family, split, index)}: {cause}")


def find_tasks(family: EnvironmentFamily, split: Split, count: int) -> list[tuple[int, Task]]:
    """The first `count` tasks that can be made, with their indices; fewer where the split ends.

    Raises EnvironmentFault naming the first that cannot, where too few of the first `NUM_TRIED` can be made.
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
    """Raise DataError naming the example where more than a share of the tasks is left out."""
    if num_left_out > max_share * max(num_tasks, COUNTED_FROM):
        raise DataError(
            f"{num_left_out} of {num_tasks} tasks cannot be played, more than environment.max_left_out={max_share:g} "
            f"allows (counted from {COUNTED_FROM} tasks); the last: {example}"
        )
