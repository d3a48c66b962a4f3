"""The clock of a simulation: what happens next."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Agenda:
    """Events in the order of their times; those of the same time in the order in which they were added."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._num_events = 0

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Call `event` this many seconds from now."""
        self._num_events += 1
        heapq.heappush(self._events, (self.now_s + seconds, self._num_events, event))

    def advance(self) -> bool:
        """Go to the next event; False if there is none."""
        if not self._events:
            return False
        self.now_s, _, event = heapq.heappop(self._events)
        event()
        return True
