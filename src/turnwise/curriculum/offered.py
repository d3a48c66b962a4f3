"""The tasks of the training split that can be drawn now, told apart by kind.

Kinds are known for the tasks up to `LOOKAHEAD` behind the last one drawn. A split may begin its tasks again when they
are used up: one of the same content as a task before is not offered. What is offered follows from the draws so far
alone, so that a continued run is offered the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

LOOKAHEAD = 256
"""Number of tasks behind the last one drawn among which new tasks of a kind are sought."""


class Offered:
    """Implements `OfferedTasks`."""

    def __init__(
        self, identify: Callable[[int], tuple[str, str] | None], *, first: int, lookahead: int = LOOKAHEAD
    ) -> None:
        """`identify` returns kind and identity of a task by its index, None for one that cannot be made, and raises
        IndexError past the end of the split. Tasks before `first` are never offered."""
        self._identify = identify
        self._lookahead = lookahead
        self._cursor = first
        """First task whose kind is not known yet."""
        self._horizon = first + lookahead
        self._end: int | None = None
        self._kinds: dict[int, str] = {}
        self._identities: set[str] = set()
        self._new: dict[str, deque[int]] = {}
        self._drawn: Counter[int] = Counter()
        self._left_out: set[int] = set()
        self._playing: dict[int, int] = {}
        """Task of every draw without a result, by draw."""

    @property
    def num_known(self) -> int:
        """Number of tasks whose kind is known."""
        return len(self._kinds)

    def recall(self, task: int) -> None:
        """Record that a task was drawn."""
        self._drawn[task] += 1
        self._horizon = max(self._horizon, task + 1 + self._lookahead)

    def hold(self, draw: int, task: int) -> None:
        """Record that a drawn task is not free until `settle`."""
        self._playing[draw] = task

    def settle(self, draw: int) -> None:
        """Record that a draw has its result, or will have none."""
        self._playing.pop(draw, None)

    def leave_out(self, task: int) -> None:
        """Never offer this task again."""
        self._left_out.add(task)

    def take_new(self, kind: str | None) -> int:
        """Return the next new task (of this kind). Raises LookupError if there is none."""
        task = self._find_new(kind)
        if task is None:
            raise LookupError("no new task" + ("" if kind is None else f" of kind {kind!r}"))
        return task

    def kinds(self) -> list[str]:
        """See `OfferedTasks`."""
        self._look_ahead()
        known = {self._kinds[task] for task in self._drawn if task in self._kinds and task not in self._left_out}
        return sorted(known | {kind for kind in self._new if self._find_new(kind) is not None})

    def count_kinds(self) -> dict[str, int]:
        """Return the number of tasks of each kind, among those whose kind is known."""
        self._look_ahead()
        return dict(sorted(Counter(kind for task, kind in self._kinds.items() if task not in self._left_out).items()))

    def has_new(self, kind: str | None = None) -> bool:
        """See `OfferedTasks`."""
        return self._find_new(kind) is not None

    def is_free(self, task: int) -> bool:
        """See `OfferedTasks`."""
        return task in self._drawn and task not in self._left_out and task not in self._playing.values()

    def repeats(self, kind: str | None = None) -> list[int]:
        """See `OfferedTasks`."""
        self._look_ahead()
        busy = {*self._playing.values(), *self._left_out}
        free = [task for task in self._drawn if task not in busy and kind in (None, self._kinds.get(task))]
        fewest = min((self._drawn[task] for task in free), default=0)
        return sorted(task for task in free if self._drawn[task] == fewest)

    def _find_new(self, kind: str | None) -> int | None:
        self._look_ahead()
        if kind is None:
            found = [task for each in self._new if (task := self._find_new(each)) is not None]
            return min(found, default=None)
        waiting = self._new.get(kind, deque())
        while waiting and (waiting[0] in self._drawn or waiting[0] in self._left_out):
            waiting.popleft()
        return waiting[0] if waiting else None

    def _look_ahead(self) -> None:
        while self._end is None and self._cursor < self._horizon:
            task, self._cursor = self._cursor, self._cursor + 1
            if task in self._left_out:
                continue
            try:
                found = self._identify(task)
            except IndexError:
                self._end = task
                return
            if found is None:
                self._left_out.add(task)
                continue
            kind, identity = found
            if identity in self._identities:
                continue
            self._identities.add(identity)
            self._kinds[task] = kind
            self._new.setdefault(kind, deque()).append(task)
