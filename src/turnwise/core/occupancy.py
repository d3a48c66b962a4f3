"""Where a machine's time went: busy and idle seconds by cause, which add up to all of it."""

from __future__ import annotations

from collections import Counter


class Occupancy:
    """Seconds by state of something that is in one state at a time.

    Whatever the states are, their seconds add up to the time since the start: a second that is not busy has a cause.
    Clocks are arguments: seconds of any monotonic clock.
    """

    def __init__(self, state: str, now_s: float) -> None:
        self.state = state
        """The present state."""
        self._since_s = now_s
        self._seconds: Counter[str] = Counter()

    def switch(self, state: str, now_s: float) -> None:
        """From now on it is in `state`; what was before goes to the state before."""
        self._seconds[self.state] += now_s - self._since_s  # type: ignore[assignment]
        self.state, self._since_s = state, now_s

    def seconds(self, now_s: float) -> dict[str, float]:
        """Seconds by state until now; states it was never in are missing."""
        self.switch(self.state, now_s)
        return {state: float(seconds) for state, seconds in self._seconds.items() if seconds}
