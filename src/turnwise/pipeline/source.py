"""The source of draws: first those of a process that ended, then the training split in order, and refills by value.

A task that cannot be built is left out for good: the journal records the decision, and only a limited share may be left
out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwise.algorithms.vspo import compute_task_value, draw_refill
from turnwise.core.errors import ConfigError, DataError, boundary
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Draw, TrajectoryGroup
from turnwise.environments.draws import LeftOut, check_left_out, name_task, try_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A draw that is about to be opened."""

    draw: Draw
    task_index: int
    """Index of its task in the training split."""
    opened_version: int | None = None
    """The weight version under which a process that has ended opened it; None if none did."""


class TaskSource:
    """Hands out draws; its position is two numbers, which the journal stores."""

    def __init__(
        self,
        family: EnvironmentFamily,
        *,
        next_draw: int,
        next_task: int,
        leave_out: Callable[[LeftOut], None],
        num_left_out: int = 0,
        max_left_out: float = 0.0,
    ) -> None:
        """`leave_out` records a task that cannot be built; `num_left_out` is the number recorded before."""
        self._family = family
        self._next_draw = next_draw
        self._next_task = next_task
        self._leave_out = leave_out
        self._num_left_out = num_left_out
        self._max_left_out = max_left_out
        self._queue: deque[Drawn] = deque()

    @property
    def num_waiting(self) -> int:
        """Number of draws that are handed out before any new one."""
        return len(self._queue)

    def put_back(self, drawn: Drawn) -> None:
        """Hand out this draw before any new one: its rollout was interrupted."""
        self._queue.append(drawn)

    def repeat(self, task_indices: Sequence[int]) -> None:
        """Draw these tasks again, next."""
        for index in task_indices:
            if (draw := self._number(index)) is not None:
                self._queue.append(Drawn(draw=draw, task_index=index))

    def next(self) -> Drawn:
        """Return the next draw. Raises DataError if the training split ended, or if too many tasks cannot be built."""
        if self._queue:
            return self._queue.popleft()
        while True:
            index, self._next_task = self._next_task, self._next_task + 1
            if (draw := self._number(index)) is not None:
                return Drawn(draw=draw, task_index=index)

    def name(self, task_index: int) -> str:
        """Name the task with this index, with file and line if it comes from a file."""
        return name_task(self._family, "train", task_index)

    def count_left_out(self, example: str) -> None:
        """Count one more task that cannot be played. Raises DataError naming it if there are too many."""
        self._num_left_out += 1
        check_left_out(self._num_left_out, self._next_draw + self._num_left_out, self._max_left_out, example)

    def _number(self, task_index: int) -> Draw | None:
        try:
            task = try_task(self._family, "train", task_index)
        except IndexError as end:
            raise DataError(
                f"the training split ended after {task_index} tasks; lower train.steps or rollout.tasks_per_step, or "
                f"add tasks to the environment ({name_task(self._family, 'train', task_index)}: IndexError: {end})"
            ) from None
        if isinstance(task, LeftOut):
            self._leave_out(task)
            self.count_left_out(task.why)
            return None
        self._next_draw += 1
        return Draw(index=self._next_draw - 1, task=task)


def draw_by_value(
    groups: Sequence[TrajectoryGroup], task_indices: Sequence[int], count: int, *, max_reward: float, seed: int
) -> list[int]:
    """Draw `count` of the groups' tasks by VSPO's task value over all their trajectories; none if every value is 0.

    Deviation from VSPO: the tasks are sampled afresh, so their advantages need no decay. Raises ConfigError for a
    reward above `max_reward`.
    """
    indices: dict[str, int] = {}
    rewards: dict[str, list[float | None]] = {}
    for group, index in zip(groups, task_indices, strict=True):
        indices[group.task.id] = index
        rewards.setdefault(group.task.id, []).extend(group.credited_rewards())
    with boundary(ConfigError, "rollout.dynamic_sampling.max_reward"):
        values = {name: compute_task_value(each, max_reward=max_reward) for name, each in rewards.items()}
    return [indices[name] for name in draw_refill(values, num_slots=count, seed=seed)]
