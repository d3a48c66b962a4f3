"""How well scores tell successes, and whether they are probabilities: AUC, Brier score, calibration. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.ranking import compute_auc

NUM_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Scores of one tenth of [0, 1]."""

    count: int
    score: float
    """Mean score."""
    right: float
    """Share of successes, or mean of what is true where that is a probability."""
    low: float
    high: float
    """Its 95% Wilson interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Scores compared with what is true, a success or a probability of it."""

    count: int
    auc: float | None
    """Probability that a true score above 0.5 is ranked above another; None without both."""
    brier: float
    """Mean squared difference."""
    correlation: float | None
    """Pearson's; None if either side is constant."""
    calibration_error: float
    """Mean over scores of the distance between a bin's mean score and its mean truth (10 bins of equal width; Naeini et
    al. 2015)."""
    bins: tuple[Bin, ...]
    """Bins that have scores, ascending."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def measure_scores(scores: Sequence[float], truth: Sequence[float]) -> Quality:
    """Compare scores in [0, 1] with what is true, in [0, 1].

    Raises ValueError if there are none, or they differ in number."""
    if not scores or len(scores) != len(truth):
        raise ValueError(f"{len(scores)} scores for {len(truth)} true values; give one of each, at least one")
    given, true = np.asarray(scores, np.float64), np.asarray(truth, np.float64)
    places = np.minimum((given * NUM_BINS).astype(int), NUM_BINS - 1)
    bins = []
    for place in range(NUM_BINS):
        inside = places == place
        if inside.any():
            count, total = int(inside.sum()), float(true[inside].sum())
            low, high = compute_wilson_interval(total, count)
            bins.append(Bin(count=count, score=float(given[inside].mean()), right=total / count, low=low, high=high))
    return Quality(
        count=len(given),
        auc=compute_auc(given.tolist(), (true > 0.5).tolist()),
        brier=float(((given - true) ** 2).mean()),
        correlation=correlate(given, true),
        calibration_error=math.fsum(each.count * abs(each.score - each.right) for each in bins) / len(given),
        bins=tuple(bins),
    )


def correlate(first: np.ndarray, second: np.ndarray) -> float | None:
    """Pearson's correlation; None if a side varies by less than 1e-12."""
    first, second = first - first.mean(), second - second.mean()
    norm = math.sqrt(float((first**2).sum()) * float((second**2).sum()))
    return None if norm < 1e-12 * len(first) else float((first * second).sum()) / norm
