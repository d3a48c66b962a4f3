"""Whether shares that are measured in a run fall: the first of the run beside the latest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

FEWEST = 50
"""Fewest values that are compared, of the beginning and of the latest."""
MOST = 400
"""Most of the latest that are compared."""
DROP = 0.1
"""Least fall of the mean from which it is a drift."""
DEVIATIONS = 3.0
"""Least standard errors of that fall."""


@dataclass(slots=True)
class Drift:
    """The first and the latest values of something, each between 0 and 1."""

    first: list[float] = field(default_factory=list)
    latest: list[float] = field(default_factory=list)
    fewest: int = FEWEST
    num_seen: int = 0

    def state(self) -> list[Any]:
        """Return what a checkpoint must hold."""
        return [list(self.first), list(self.latest), self.num_seen]

    @classmethod
    def restore(cls, state: Sequence[Any], *, fewest: int = FEWEST) -> Drift:
        """Return the drift whose `state` this is; one without the number of values has seen those that it holds."""
        first, latest, *seen = state
        return cls(list(first), list(latest), fewest, seen[0] if seen else len(latest))

    def add(self, value: float) -> None:
        """Count a value."""
        self.num_seen += 1
        if len(self.first) < MOST:
            self.first.append(value)
        self.latest.append(value)
        del self.latest[:-MOST]

    def is_below(self, limit: float) -> bool:
        """Return whether the mean of the latest is below a limit, by `DEVIATIONS` standard errors."""
        if len(self.latest) < self.fewest:
            return False
        return fmean(self.latest) + DEVIATIONS * math.sqrt(_vary(self.latest) / len(self.latest)) < limit

    def has_fallen(self) -> bool:
        """Return whether the mean of the latest is below that of the first, by `DROP` and `DEVIATIONS` standard errors.

        The two do not overlap: of a run of fewer than twice `MOST` each is a half. The variance of the first has
        0.25 / n in addition, so that a beginning without a fault is not taken for certain.
        """
        size = min(self.num_seen // 2, MOST)
        if size < self.fewest:
            return False
        first, latest = self.first[:size], self.latest[-size:]
        fall = fmean(first) - fmean(latest)
        error = math.sqrt((_vary(first) + 0.25 / len(first)) / len(first) + _vary(latest) / len(latest))
        return fall >= DROP and fall >= DEVIATIONS * error


def _vary(values: Sequence[float]) -> float:
    """Return the variance of the values, divided by their count: of ones and zeros, share * (1 - share)."""
    mean = fmean(values)
    return fmean((value - mean) ** 2 for value in values)
