"""Confidence intervals for shares, 95%. `benchmarks/coverage.py` simulates how often they hold the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from turnwise.evaluation.spread import estimate_freedom

Z_95 = 1.959963984540054
"""97.5th percentile of the standard normal distribution."""
TAIL = 0.025
"""Probability on each side of an interval."""

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Floats)


def compute_wilson_interval(successes: float, count: float) -> tuple[float, float]:
    """Compute the 95% Wilson score interval of a share (Wilson 1927); it stays in [0, 1] and is meaningful
    at 0 and at `count`.

    With `count` 0 it is (0.0, 1.0): nothing is known. Raises ValueError if successes are not between 0 and `count`.
    """
    _check_share(successes, count)
    if count == 0:
        return 0.0, 1.0
    low, high = _wilson(successes / count, count)
    return max(0.0, low), min(1.0, high)


def compute_share_interval(successes: float, count: float) -> tuple[float, float]:
    """Compute an interval of a share of independent results: the smallest that holds Wilson's and the mid-P interval.

    Wilson's alone holds a share of 2% with eight results in 85% of cases, and mid-P alone one of 5% with a hundred in
    93%; each is low where the other is not. The mid-P bounds are the shares at which more successes than `successes`
    plus half of as many have a probability of 2.5% and of 97.5% (Lancaster 1961), by the incomplete beta function, so
    that successes may be fractional. With `count` 0 it is (0.0, 1.0). Raises ValueError as `compute_wilson_interval`.
    """
    low, high = compute_wilson_interval(successes, count)
    if count == 0:
        return low, high

    def exceed(share: float) -> float:
        at_least = special.betainc(successes, count - successes + 1, share) if successes else 1.0
        more = special.betainc(successes + 1, count - successes, share) if successes < count else 0.0
        return float(at_least + more) / 2

    bottom = 0.0 if successes == 0 else _invert(exceed, TAIL)
    top = 1.0 if successes == count else _invert(exceed, 1 - TAIL)
    return min(low, bottom), max(high, top)


def compute_clustered_interval(clusters: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Compute an interval of the mean of values in [0, 1] that come in clusters: samples of one task, tasks of one
    world.

    If no cluster has two values it is `compute_share_interval`; with one cluster it is Wilson's for one result, and no
    values give (0.0, 1.0). Otherwise see `compute_clustered_intervals`.
    """
    filled = [cluster for cluster in clusters if cluster]
    if max(map(len, filled), default=1) == 1:
        return compute_share_interval(math.fsum(cluster[0] for cluster in filled), len(filled))
    if len(filled) == 1:
        return compute_wilson_interval(math.fsum(filled[0]) / len(filled[0]), 1)
    sizes = np.array([len(cluster) for cluster in filled], np.float64)
    low, high = compute_clustered_intervals(np.array([[math.fsum(cluster) for cluster in filled]]), sizes)
    return float(low[0]), float(high[0])


def compute_clustered_intervals(sums: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Compute the bounds, each `[R]`, from the `sums` of values in [0, 1] per cluster, `[R, M]` with M at least 2, and
    their number per cluster, `sizes` `[M]`.

    It is the Wilson interval for the effective number of independent values: mean (1 - mean) divided by the squared
    standard error of the mean over clusters, with Bessel's correction for the number of clusters (Dean and Pagano 2015;
    the effective sample size of Kish 1965). Clusters of unequal size count as fewer, count^2 / sum of squared sizes.
    The effective number is at least 1 and at most the number of values, and is then multiplied by (z / t)^2 (Korn and
    Graubard 1998), t being Student's for the degrees of freedom of the standard error. Deviation: these are Welch's and
    Satterthwaite's by the kurtosis of the clusters (`estimate_freedom`), not always M - 1, because rare successes that
    come in few clusters determine it no better than so many clusters.

    If all values are 0 or all are 1, the correlation within clusters is unknown and each cluster is one result.
    """
    count = sizes.sum()
    num_clusters = count**2 / (sizes**2).sum()
    mean = sums.sum(axis=1) / count
    residuals = sums - mean[:, None] * sizes
    variance = num_clusters / (num_clusters - 1) * (residuals**2).sum(axis=1) / count**2
    with np.errstate(divide="ignore", invalid="ignore"):
        independent = np.where(variance > 0, np.clip(mean * (1 - mean) / variance, 1.0, count), count)
    student = special.stdtrit(estimate_freedom(residuals, num_clusters), 1 - TAIL)
    low, high = _wilson(mean, independent * (Z_95 / student) ** 2)
    none, every = mean <= 0, mean >= 1
    ends = compute_share_interval(0, num_clusters)
    low = np.where(every, 1 - ends[1], np.where(none, 0.0, low))
    high = np.where(none, ends[1], np.where(every, 1.0, high))
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def compute_pass_at(k: int, *, num_samples: int, num_passed: int) -> float:
    """Return the probability that at least one of `k` of a task's samples, drawn without replacement, passed: the
    unbiased estimator of pass@k (arXiv 2107.03374, equation 1).

    Raises ValueError if there are fewer than `k` samples, or more passed than there are samples.
    """
    if not 1 <= k <= num_samples or not 0 <= num_passed <= num_samples:
        raise ValueError(f"pass@{k} of {num_passed} of {num_samples} samples is not defined")
    return 1.0 - math.comb(num_samples - num_passed, k) / math.comb(num_samples, k)


def _check_share(successes: float, count: float) -> None:
    if not 0 <= successes <= count:
        raise ValueError(f"{successes} successes out of {count} are not a valid share")


def _wilson(share: Number, count: Number) -> tuple[Number, Number]:
    centre = (share + Z_95**2 / (2 * count)) / (1 + Z_95**2 / count)
    half = Z_95 / (1 + Z_95**2 / count) * (share * (1 - share) / count + Z_95**2 / (4 * count * count)) ** 0.5
    return centre - half, centre + half


def _invert(increases: Callable[[float], float], level: float) -> float:
    """The share at which a function that increases on [0, 1] reaches a level, by bisection to the last bits."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if increases(middle) < level else (low, middle)
    return (low + high) / 2
