"""Tests that may be looked at after every result: they stop as soon as the answer is known, with the error held."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Side = Literal["above", "below"]
NUM_BETS = 40
"""Stakes among which the capital of each side is spread."""


@dataclass(slots=True, kw_only=True, eq=False)
class MeanTest:
    """Tests whether the mean of results in [`least`, `most`] is above or below a threshold.

    Two players bet on the results, one that the mean is above, one that it is below. Each spreads its capital evenly
    over stakes between 0 and the largest that cannot ruin it, and multiplies each part by 1 + stake * (result -
    threshold). If a player is wrong, its capital is a nonnegative supermartingale, which ever exceeds 2 / `error` with
    a probability of at most `error` / 2 (Ville 1939; betting on bounded means: Waudby-Smith and Ramdas 2024). So the
    probability of ever saying the wrong side is at most `error` / 2, and that of saying any side where the mean equals
    the threshold is at most `error`, however often one looks. Results must be independent draws, such as tasks or
    clusters of tasks in random order. Deviation from the paper: a fixed even mixture of stakes instead of stakes that
    follow earlier results, so that the order of results does not matter. Results equal to the threshold, such as tasks
    on which two policies agree, leave the capital as it is: this is then a mixture SPRT of the others.
    """

    threshold: float
    least: float = 0.0
    most: float = 1.0
    error: float = 0.05
    count: int = 0
    """Results so far."""
    total: float = 0.0
    """Their sum."""
    _logs: dict[Side, np.ndarray] = field(default_factory=dict)
    """Logarithm of the capital at each stake, by side."""

    def __post_init__(self) -> None:
        if not self.least < self.threshold < self.most:
            raise ValueError(
                f"the threshold {self.threshold:g} is not between {self.least:g} and {self.most:g}, the smallest and "
                "largest result; nothing can be on its other side"
            )
        if not 0 < self.error < 1:
            raise ValueError(f"the error {self.error:g} is not between 0 and 1")
        self._logs = {"above": np.zeros(NUM_BETS), "below": np.zeros(NUM_BETS)}

    @property
    def mean(self) -> float:
        """Mean of the results so far; NaN without any. After a stop it is further from the threshold than the truth."""
        return self.total / self.count if self.count else math.nan

    def observe(self, results: Iterable[float]) -> None:
        """Take further results. Raises ValueError for one outside [`least`, `most`], NaN included; none is then
        taken."""
        values = np.array([*results], np.float64)
        for value in values[~((values >= self.least) & (values <= self.most))]:
            raise ValueError(f"result {value} is outside [{self.least:g}, {self.most:g}]")
        self.count, self.total = self.count + len(values), self.total + math.fsum(values)
        above = (values - self.threshold) / (self.threshold - self.least)
        below = (self.threshold - values) / (self.most - self.threshold)
        self._logs["above"] += np.log1p(np.outer(above, _STAKES)).sum(axis=0)
        self._logs["below"] += np.log1p(np.outer(below, _STAKES)).sum(axis=0)

    def bound(self, side: Side) -> float:
        """Return a bound of the probability that a capital such as this side's is ever reached if the side is wrong: a
        p-value that holds at every look."""
        logs = self._logs[side]
        largest = float(logs.max())
        capital = largest + math.log(float(np.exp(logs - largest).mean()))
        return min(1.0, math.exp(-capital))

    @property
    def decision(self) -> Side | None:
        """The side that is known to be right; None if neither is yet."""
        known: list[Side] = [side for side in ("above", "below") if self.bound(side) <= self.error / 2]
        return known[0] if known else None


_STAKES = np.linspace(0.0, 0.95**0.5, NUM_BETS + 1)[1:] ** 2
"""As shares of the largest stake that cannot ruin."""
