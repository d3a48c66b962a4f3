"""Where a machine's time went: busy and idle seconds by cause, which add up to all of it; and levels over time."""

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


class Level:
    """A number that stays until it changes: its mean over time and its maximum. Clocks as in `Occupancy`."""

    def __init__(self, now_s: float) -> None:
        self._value = self._largest = 0.0
        self._area = 0.0
        self._since_s = self._taken_s = now_s

    def set(self, value: float, now_s: float) -> None:
        """From now on it is `value`."""
        self._area += self._value * (now_s - self._since_s)
        self._value, self._since_s = value, now_s
        self._largest = max(self._largest, value)

    def take(self, now_s: float) -> tuple[float, float, float]:
        """The sum of value times seconds, the seconds, and the largest value, all since the last call."""
        self.set(self._value, now_s)
        taken = self._area, now_s - self._taken_s, self._largest
        self._area, self._taken_s, self._largest = 0.0, now_s, self._value
        return taken
