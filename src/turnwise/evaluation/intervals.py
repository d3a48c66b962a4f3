"""Confidence intervals for shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z_95 = 1.959963984540054
"""97.5th percentile of the standard normal distribution."""


def compute_wilson_interval(successes: float, count: float, z: float = Z_95) -> tuple[float, float]:
    """Compute the Wilson score interval of a share (Wilson 1927), 95% by default; it stays in [0, 1] and is meaningful
    at 0 and at `count`.

    With `count` 0 it is (0.0, 1.0): nothing is known. Raises ValueError if successes are not between 0 and `count`.
    """
    if not 0 <= successes <= count:
        raise ValueError(f"{successes} successes out of {count} are not a valid share")
    if count == 0:
        return 0.0, 1.0
    share = successes / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def compute_clustered_interval(clusters: Sequence[Sequence[float]], z: float = Z_95) -> tuple[float, float]:
    """Compute an interval of the mean of values in [0, 1] that come in clusters (samples of one task).

    It is the Wilson interval for the effective number of independent values: mean (1 - mean) divided by the squared
    standard error of the mean over clusters, with Bessel's correction for the number of clusters (Dean and Pagano 2015;
    the effective sample size of Kish 1965). Clusters of unequal size count as fewer, count^2 / sum of squared sizes.
    The effective number never exceeds the number of values. If all values are 0 or all are 1, it is the number of
    clusters, since the correlation within clusters is unknown. If no cluster has two values, the result is the plain
    Wilson interval. No values give (0.0, 1.0).
    """
    sizes = [len(cluster) for cluster in clusters if cluster]
    count, total = sum(sizes), math.fsum(value for cluster in clusters for value in cluster)
    if not count or max(sizes) == 1:
        return compute_wilson_interval(total, count, z)
    mean, num_clusters = total / count, count**2 / sum(size**2 for size in sizes)
    spread = math.fsum((math.fsum(cluster) - len(cluster) * mean) ** 2 for cluster in clusters)
    independent = num_clusters
    if len(sizes) == 1:
        independent = 1.0
    elif spread > 0:
        variance = num_clusters / (num_clusters - 1) * spread / count**2
        independent = min(float(count), max(1.0, mean * (1 - mean) / variance))
    elif 0 < mean < 1:
        independent = float(count)
    return compute_wilson_interval(mean * independent, independent, z)


def compute_pass_at(k: int, *, num_samples: int, num_passed: int) -> float:
    """Return the probability that at least one of `k` of a task's samples, drawn without replacement, passed: the
    unbiased estimator of pass@k (arXiv 2107.03374, equation 1).

    Raises ValueError if there are fewer than `k` samples, or more passed than there are samples.
    """
    if not 1 <= k <= num_samples or not 0 <= num_passed <= num_samples:
        raise ValueError(f"pass@{k} of {num_passed} of {num_samples} samples is not defined")
    return 1.0 - math.comb(num_samples - num_passed, k) / math.comb(num_samples, k)
