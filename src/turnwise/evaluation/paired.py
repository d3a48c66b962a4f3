"""The mean difference of two evaluations on the same tasks: its interval, and tests that it is not zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from turnwise.evaluation.intervals import TAIL, Floats
from turnwise.evaluation.spread import estimate_freedom

MOST_FLIPS = 9_999
"""Sign flips that `compute_sign_flips` draws where there are too many to list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A mean difference."""

    mean: float
    low: float
    high: float
    """`low` to `high` is its 95% interval."""
    standard_error: float
    freedom: float
    """Degrees of freedom of the standard error."""


def compute_difference(clusters: Sequence[Sequence[float]]) -> Difference:
    """Compute the mean of differences in [-1, 1], one per task, that come in clusters, at least two (see
    `compute_differences`). Raises ValueError for fewer."""
    if len(clusters) < 2 or not all(clusters):
        raise ValueError(f"{len(clusters)} clusters; a difference needs at least two, none of them empty")
    sizes = np.array([len(cluster) for cluster in clusters], np.float64)
    sums = np.array([[math.fsum(cluster) for cluster in clusters]])
    low, high, error, freedom = (float(each[0]) for each in compute_differences(sums, sizes))
    mean = float(sums.sum() / sizes.sum())
    return Difference(mean=mean, low=min(low, mean), high=max(high, mean), standard_error=error, freedom=freedom)


def compute_differences(sums: Floats, sizes: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Compute bounds, standard error and degrees of freedom of the mean, each `[R]`, from the `sums` of differences in
    [-1, 1] per cluster, `[R, M]`, and their number per cluster, `sizes` `[M]`.

    Two tasks are added, one that each side wins: with one attempt per task this is the interval of Bonett and Price
    (2012, "adjusted Wald") for matched pairs, which is no point where no task differs. Deviations: the standard error
    is that of the mean over clusters, and Student's quantile has the degrees of freedom of `estimate_freedom`.
    """
    count = sizes.sum() + 2
    num_clusters = sizes.sum() ** 2 / (sizes**2).sum()
    mean = sums.sum(axis=1) / count
    residuals = np.concatenate([sums - mean[:, None] * sizes, (1 - mean)[:, None], (-1 - mean)[:, None]], axis=1)
    bessel = num_clusters / (num_clusters - 1)
    error = np.sqrt(bessel * (residuals**2).sum(axis=1)) / count
    freedom = estimate_freedom(residuals, num_clusters)
    half = special.stdtrit(freedom, 1 - TAIL) * error
    return np.clip(mean - half, -1.0, 1.0), np.clip(mean + half, -1.0, 1.0), error, freedom


def compute_mcnemar(first_only: int, second_only: int) -> float:
    """Return the exact two-sided p-value of McNemar's test: of the tasks that only one side solves, each side solves
    half if they are equally good (McNemar 1947; twice the smaller tail of the binomial distribution). 1 if there is
    none."""
    count = first_only + second_only
    return min(1.0, 2 * float(special.bdtr(min(first_only, second_only), count, 0.5))) if count else 1.0


def compute_sign_flips(sums: Sequence[float]) -> float:
    """Return the two-sided p-value of the sum of clusters' differences among all flips of their signs, which are
    equally likely if both sides are equally good in every cluster; the permutation test of scipy.

    All flips are listed if there are at most `MOST_FLIPS`, else so many are drawn with a fixed seed. With one task of
    one attempt per cluster it is McNemar's exact test.
    """
    from scipy.stats import permutation_test  # takes a second to import

    differing = np.array([each for each in sums if each], np.float64)
    if len(differing) < 2:  # both flips of one difference are as large; scipy refuses it
        return 1.0
    result = permutation_test(
        (differing, np.zeros(len(differing))),
        lambda first, second, axis: (first - second).sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=MOST_FLIPS,
        batch=1_000,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)
