"""Stations other than engines where trajectories wait: tools, sandboxes, judges."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from turnwise.forecast.simulation.agenda import Agenda


class Station:
    """Serves `num_servers` calls at once, others in order of arrival; None serves all at once."""

    def __init__(self, agenda: Agenda, num_servers: int | None) -> None:
        if num_servers is not None and num_servers < 1:
            raise ValueError(f"got {num_servers} servers; a station needs at least 1, or None for no limit")
        self._agenda = agenda
        self._num_servers = num_servers
        self._num_busy = 0
        self._queue: deque[tuple[float, Callable[[], None]]] = deque()

    def serve(self, seconds: float, done: Callable[[], None]) -> None:
        """Serve a call for `seconds`, then call `done`; a call of infinite duration is never done."""
        if self._num_servers is not None and self._num_busy >= self._num_servers:
            self._queue.append((seconds, done))
            return
        self._num_busy += 1
        if math.isfinite(seconds):
            self._agenda.after(seconds, lambda: self._end(done))

    def _end(self, done: Callable[[], None]) -> None:
        self._num_busy -= 1
        if self._queue:
            self.serve(*self._queue.popleft())
        done()
