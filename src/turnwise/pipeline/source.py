"""The source of draws: first those of a process that ended, then refills by value, then the training split, in order or
as a curriculum chooses.

A task that cannot be built is left out for good: the journal records the decision, and only a limited share may be left
out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from turnwise.core.errors import DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Draw
from turnwise.curriculum.curriculum import REFILL, Curriculum, DrawnTask
from turnwise.curriculum.offered import Offered
from turnwise.environments.draws import LeftOut, check_left_out, name_task, try_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A draw that is about to be opened."""

    draw: Draw
    task_index: int
    """Index of its task in the training split."""
    opened_version: int | None = None
    """The weight version under which a process that has ended opened it; None if none did."""
    pool: str = ""
    """What a curriculum drew it for; empty without one."""


class TaskSource:
    """Hands out draws; its position follows from the draws before, which the journal stores."""

    def __init__(
        self,
        family: EnvironmentFamily,
        *,
        next_draw: int,
        next_task: int,
        leave_out: Callable[[LeftOut], None],
        num_left_out: int = 0,
        max_left_out: float = 0.0,
        curriculum: Curriculum | None = None,
    ) -> None:
        """`leave_out` records a task that cannot be built; `num_left_out` is the number recorded before. `curriculum`
        chooses tasks from `next_task` on; None draws them in order."""
        self._family = family
        self._next_draw = next_draw
        self._next_task = next_task
        self._leave_out = leave_out
        self._num_left_out = num_left_out
        self._max_left_out = max_left_out
        self._queue: deque[Drawn] = deque()
        self._curriculum = curriculum
        self._offered = Offered(self._identify, first=next_task)

    @property
    def num_waiting(self) -> int:
        """Number of draws that are handed out before any new one."""
        return len(self._queue)

    def put_back(self, drawn: Drawn) -> None:
        """Hand out this draw before any new one: its rollout was interrupted."""
        self._queue.append(drawn)

    def recall(
        self, draws: Iterable[tuple[int, DrawnTask]], *, playing: Collection[int], left_out: Iterable[int]
    ) -> None:
        """Tell the curriculum about the draws of processes that ended: which of them have no result yet, and which
        tasks are left out."""
        if self._curriculum is not None:
            for draw, drawn in draws:
                self._curriculum.note(draw, drawn)
                self._offered.recall(drawn.task)
                if draw in playing:
                    self._offered.hold(draw, drawn.task)
            for task in left_out:
                self._offered.leave_out(task)

    def settle(self, draws: Iterable[int]) -> None:
        """Record that draws have their results, or will have none: a curriculum may draw their tasks again."""
        for draw in draws:
            self._offered.settle(draw)

    def count_kinds(self) -> dict[str, int]:
        """Return the number of tasks of each kind among those that the curriculum knows; empty without one."""
        return {} if self._curriculum is None else self._offered.count_kinds()

    def repeat(self, task_indices: Sequence[int]) -> None:
        """Draw these tasks again, next."""
        for index in task_indices:
            if (draw := self._number(index)) is not None:
                self._queue.append(self._begin(Drawn(draw=draw, task_index=index, pool=REFILL)))

    def next(self) -> Drawn:
        """Return the next draw. Raises DataError if the training split ended, if a curriculum has no task left, or if
        too many tasks cannot be built."""
        if self._queue:
            return self._queue.popleft()
        while True:
            index, pool = self._choose()
            if (draw := self._number(index)) is not None:
                return self._begin(Drawn(draw=draw, task_index=index, pool=pool))
            self._offered.leave_out(index)

    def _choose(self) -> tuple[int, str]:
        """Return the index of the next task, and what it is drawn for."""
        if self._curriculum is None:
            self._next_task += 1
            return self._next_task - 1, ""
        choice = self._curriculum.choose(self._next_draw, self._offered)
        index = self._offered.take_new(choice.kind) if choice.again is None else choice.again
        return index, choice.pool

    def _begin(self, drawn: Drawn) -> Drawn:
        if self._curriculum is None:
            return replace(drawn, pool="")
        self._curriculum.note(drawn.draw.index, DrawnTask(task=drawn.task_index, pool=drawn.pool))
        self._offered.recall(drawn.task_index)
        self._offered.hold(drawn.draw.index, drawn.task_index)
        return drawn

    def _identify(self, task_index: int) -> tuple[str, str] | None:
        """Return kind and identity of a task; None for one that cannot be built. Raises IndexError past the end of the
        split."""
        task = try_task(self._family, "train", task_index)
        if not isinstance(task, LeftOut):
            return None if self._curriculum is None else self._curriculum.identify(task)
        self._leave_out(task)
        self.count_left_out(task.why)
        return None

    def name(self, task_index: int) -> str:
        """Name the task with this index, with file and line if it comes from a file."""
        return name_task(self._family, "train", task_index)

    def leave_out(self, task_index: int, example: str) -> None:
        """Draw a task that cannot be played no more. Raises DataError naming it if there are too many."""
        self._offered.leave_out(task_index)
        self.count_left_out(example)

    def count_left_out(self, example: str) -> None:
        """Count one more task that cannot be played. Raises DataError naming it if there are too many."""
        self._num_left_out += 1
        num_tasks = max(self._next_draw, self._offered.num_known) + self._num_left_out
        check_left_out(self._num_left_out, num_tasks, self._max_left_out, example)

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
