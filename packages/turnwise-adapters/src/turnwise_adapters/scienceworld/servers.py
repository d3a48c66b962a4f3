"""The Java processes of a family. An episode needs one for the time of an action only: if another episode has used it
since, the scene is loaded and the episode's actions are taken again, which takes 50 ms and 2 to 20 ms an action.

So any number of episodes can be in flight, and a process that dies costs only the episode whose action it was taking.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from turnwise.core.errors import EnvironmentFault
from turnwise_adapters.scienceworld.server import Scene, Server


class Servers:
    """At most `count` processes, started when they are needed and ended with this object or with Python."""

    def __init__(self, count: int, deadline_s: float) -> None:
        """`deadline_s` bounds every call of a process, and the wait for a free one."""
        self._count = count
        self._deadline_s = deadline_s
        self._idle: list[Server] = []  # the longest idle one first
        self._all: list[Server] = []
        self._num_started = 0
        self._changed = Condition()
        self._variations: dict[tuple[str, str], tuple[int, ...]] = {}
        self._golds: dict[Scene, tuple[str, ...]] = {}
        self.close = weakref.finalize(self, _close_all, self._all)
        """Ends all processes."""

    def list_pids(self) -> tuple[int, ...]:
        """Return the numbers of the running processes."""
        return tuple(server.pid for server in self._all)

    @contextmanager
    def use(self, owner: object) -> Iterator[Server]:
        """Lend a process, if possible the one that holds the owner's state: then `server.owner is owner`. It is
        replaced if it dies. Raises EnvironmentFault if none gets free in time."""
        server = self._take(owner)
        try:
            yield server
        except BaseException:  # an interrupted call leaves a process in an unknown state
            self._drop(server)
            raise
        with self._changed:
            self._idle.append(server)
            self._changed.notify()

    def _take(self, owner: object) -> Server:
        deadline = time.monotonic() + self._deadline_s
        with self._changed:
            while True:
                self._idle_dead()
                for wanted in (owner, None):
                    for server in self._idle:
                        if server.owner is wanted:
                            self._idle.remove(server)
                            return server
                if self._num_started < self._count:
                    self._num_started += 1
                    break
                if self._idle:
                    return self._idle.pop(0)
                if not self._changed.wait(deadline - time.monotonic()):
                    raise EnvironmentFault(
                        f"none of {self._count} Java processes of ScienceWorld got free in {self._deadline_s:g} s; "
                        "raise environment.num_servers or environment.tool_timeout_s"
                    )
        try:
            server = Server(self._deadline_s)
        except BaseException:
            with self._changed:
                self._num_started -= 1
                self._changed.notify()
            raise
        with self._changed:
            self._all.append(server)
        return server

    def _idle_dead(self) -> None:
        """Drop the idle processes that have died; an episode whose state one held is replayed in another."""
        for server in [each for each in self._idle if not each.is_alive]:
            self._idle.remove(server)
            self._forget(server)

    def _drop(self, server: Server) -> None:
        with self._changed:
            self._forget(server)
            self._changed.notify()

    def _forget(self, server: Server) -> None:
        self._all.remove(server)
        self._num_started -= 1
        server.close()

    def release(self, owner: object) -> None:
        """Let others have the process that holds this owner's state."""
        with self._changed:
            for server in self._all:
                if server.owner is owner:
                    server.owner = None

    def list_variations(self, task: str, split: str) -> tuple[int, ...]:
        """Return `Server.list_variations`, asked once."""
        if (task, split) not in self._variations:
            with self.use(self) as server:
                server.owner = None
                self._variations[task, split] = server.list_variations(task, split)
        return self._variations[task, split]

    def find_gold(self, scene: Scene) -> tuple[str, ...]:
        """Return the simulator's own solution of a scene, asked once."""
        if scene not in self._golds:
            with self.use(self) as server:
                server.owner = None
                self._golds[scene] = server.load(scene, gold=True)
        return self._golds[scene]


def _close_all(servers: list[Server]) -> None:
    for server in servers:
        server.close()
    servers.clear()
