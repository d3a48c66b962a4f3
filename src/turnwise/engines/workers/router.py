"""Chooses the worker of a request, from sessions and counts alone.

Members of a group share most of their tokens, and turns of a conversation all of them, so both are kept together: each
worker has its own cache."""

from __future__ import annotations

from turnwise.core.types import Session


class Router:
    """Conversations and open requests by worker, numbered from 0."""

    def __init__(self, *, num_workers: int, max_open: int) -> None:
        """A worker is full when it samples `max_open` requests at once."""
        self._max_open = max_open
        self._num_open = [0] * num_workers
        self._num_kept = [0] * num_workers
        self._groups: dict[str, dict[str, int]] = {}
        """By group and session name: the worker that keeps the conversation."""
        self._out: set[int] = set()

    def start(self, session: Session) -> int:
        """Return the worker for a new request: the one that keeps its conversation.

        A new conversation goes to the worker of its nearest relative, unless that worker is full and another is not;
        otherwise to the worker that keeps the fewest conversations. The nearest relative is the group's first
        conversation of the same member, whose branches share its turns, else the group's first one. At least one worker
        must not have left."""
        members = self._groups.setdefault(session.group, {})
        worker = members.get(session.name)
        if worker is None:
            workers = [each for each in range(len(self._num_open)) if each not in self._out]
            free = [each for each in workers if self._num_open[each] < self._max_open] or workers
            kin = (each for name, each in members.items() if name.partition("/")[0] == session.name.partition("/")[0])
            near = [each for each in free if each == next(kin, next(iter(members.values()), None))]
            worker = members[session.name] = min(
                near or free, key=lambda each: (self._num_kept[each], self._num_open[each])
            )
            self._num_kept[worker] += 1
        self._num_open[worker] += 1
        return worker

    def end(self, worker: int) -> None:
        """Record that a request of this worker has ended."""
        self._num_open[worker] -= 1

    def find(self, session: Session) -> int | None:
        """Return the worker that keeps a conversation; None for an unknown one."""
        return self._groups.get(session.group, {}).get(session.name)

    def release(self, session: Session) -> int | None:
        """Forget a conversation. Returns the worker that kept it; None for an unknown one."""
        members = self._groups.get(session.group, {})
        worker = members.pop(session.name, None)
        if worker is not None:
            self._num_kept[worker] -= 1
            if not members:
                del self._groups[session.group]
        return worker

    def leave(self, worker: int) -> None:
        """Send nothing to this worker until `enter`, and forget what it keeps."""
        self._out.add(worker)
        for group, members in list(self._groups.items()):
            self._groups[group] = {name: each for name, each in members.items() if each != worker}
            if not self._groups[group]:
                del self._groups[group]
        self._num_kept[worker] = 0

    def enter(self, worker: int) -> None:
        """Send requests to this worker again."""
        self._out.discard(worker)

    def forget(self) -> None:
        """Forget where conversations are kept, because caches are gone; does nothing while requests are open."""
        if not any(self._num_open):
            self._groups.clear()
            self._num_kept = [0] * len(self._num_kept)
