"""Which worker a request goes to, from names and counts alone.

Members of a group share most of their tokens, and turns of a conversation all of them, so both are kept together: a
worker has a cache of its own. Knows nothing about processes."""

from __future__ import annotations


class Router:
    """Conversations and open requests by worker, numbered from 0."""

    def __init__(self, *, num_workers: int, max_open: int) -> None:
        """`max_open` requests a worker samples at once; with as many it is full."""
        self._max_open = max_open
        self._num_open = [0] * num_workers
        self._num_kept = [0] * num_workers
        self._groups: dict[str, dict[str, int]] = {}
        """By group: the worker that keeps each of its conversations."""

    def start(self, session: str) -> int:
        """The worker of a new request: the one that keeps its conversation.

        A new conversation is kept with the first of its group, unless that worker is full and another is not; else
        where fewest are kept."""
        members = self._groups.setdefault(group_of(session), {})
        worker = members.get(session)
        if worker is None:
            everybody = range(len(self._num_open))
            free = [each for each in everybody if self._num_open[each] < self._max_open] or everybody
            near = [each for each in free if each == next(iter(members.values()), None)]
            worker = members[session] = min(near or free, key=lambda each: (self._num_kept[each], self._num_open[each]))
            self._num_kept[worker] += 1
        self._num_open[worker] += 1
        return worker

    def end(self, worker: int) -> None:
        """A request of this worker is over."""
        self._num_open[worker] -= 1

    def release(self, session: str) -> int | None:
        """The conversation is over. Returns who kept it; None for an unknown one."""
        group = group_of(session)
        members = self._groups.get(group, {})
        worker = members.pop(session, None)
        if worker is not None:
            self._num_kept[worker] -= 1
            if not members:
                del self._groups[group]
        return worker

    def forget(self) -> None:
        """Caches are gone: nothing is kept anywhere, unless requests are open, whose conversations go on where they
        are."""
        if not any(self._num_open):
            self._groups.clear()
            self._num_kept = [0] * len(self._num_kept)


def group_of(session: str) -> str:
    """A conversation named GROUP/MEMBER/ATTEMPT belongs to GROUP; another name is a group of one."""
    return session.rsplit("/", 2)[0]
