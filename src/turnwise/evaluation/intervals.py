"""Confidence intervals for shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z_95 = 1.959963984540054
"""97.5th percentile of the standard normal distribution."""


def compute_wilson_interval(successes: float, count: float, z: float = Z_95) -> tuple[float, float]:
    """The Wilson score interval of a share (Wilson 1927), 95% by default; never leaves [0, 1], sane at 0 and at
    `count`.

    `count` 0 gives (0.0, 1.0): nothing is known. Raises ValueError when successes are not between 0 and `count`.
    """
    if not 0 <= successes <= count:
        raise ValueError(f"{successes} successes of {count} is not a share")
    if count == 0:
        return 0.0, 1.0
    share = successes / count
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def compute_clustered_interval(clusters: Sequence[Sequence[float]], z: float = Z_95) -> tuple[float, float]:
    """An interval of the mean of values in [0, 1], of which those of one cluster belong together (samples of one task).

    The Wilson interval of as many independent values as say the same about the mean: mean (1 - mean) divided by the
    squared standard error of the mean over clusters, with Bessel's correction for the number of clusters (Dean and
    Pagano 2015; the effective sample size of Kish 1965). Clusters of unequal size count as fewer, count^2 / sum of
    squared sizes. Never more than there are values. Where all values are 0 or all are 1 the clusters count, since
    nothing tells how alike the values of one are. Without a cluster of two values it is the Wilson interval itself. No
    values give (0.0, 1.0).
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
    """The probability that at least one of `k` of a task's samples, drawn without putting back, passed: the unbiased
    estimator of pass@k (arXiv 2107.03374, equation 1).

    Raises ValueError where there are fewer than `k` samples, or more that passed than samples.
    """
    if not 1 <= k <= num_samples or not 0 <= num_passed <= num_samples:
        raise ValueError(f"pass@{k} of {num_passed} of {num_samples} samples is not defined")
    return 1.0 - math.comb(num_samples - num_passed, k) / math.comb(num_samples, k)
