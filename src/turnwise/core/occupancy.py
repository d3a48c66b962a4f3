"""Accounts for a machine's time: busy and idle seconds by cause, which add up to all of it; and levels over time."""

from __future__ import annotations

from collections import Counter


class Occupancy:
    """Seconds per state for something that is in one state at a time.

    The seconds of all states add up to the time since the start, so every second that is not busy has a cause. Times
    are passed as arguments: seconds of any monotonic clock.
    """

    def __init__(self, state: str, now_s: float) -> None:
        self.state = state
        """The current state."""
        self._since_s = now_s
        self._seconds: Counter[str] = Counter()

    def switch(self, state: str, now_s: float) -> None:
        """Enter `state`; the time until now is credited to the previous state."""
        self._seconds[self.state] += now_s - self._since_s  # type: ignore[assignment]
        self.state, self._since_s = state, now_s

    def seconds(self, now_s: float) -> dict[str, float]:
        """Return seconds by state until now; states that never occurred are missing."""
        self.switch(self.state, now_s)
        return {state: float(seconds) for state, seconds in self._seconds.items() if seconds}


class Level:
    """The mean over time and the maximum of a number that stays until it changes. Times as in `Occupancy`."""

    def __init__(self, now_s: float) -> None:
        self._value = self._largest = 0.0
        self._area = 0.0
        self._since_s = self._taken_s = now_s

    def set(self, value: float, now_s: float) -> None:
        """Set the number to `value` from now on."""
        self._area += self._value * (now_s - self._since_s)
        self._value, self._since_s = value, now_s
        self._largest = max(self._largest, value)

    def take(self, now_s: float) -> tuple[float, float, float]:
        """Return the sum of value times seconds, the seconds, and the largest value, all since the last call."""
        self.set(self._value, now_s)
        taken = self._area, now_s - self._taken_s, self._largest
        self._area, self._taken_s, self._largest = 0.0, now_s, self._value
        return taken
