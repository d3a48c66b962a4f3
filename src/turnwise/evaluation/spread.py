"""How well the spread of a mean is known from a number of clusters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def estimate_freedom(residuals: Floats, num_clusters: float) -> Floats:
    """Estimate the degrees of freedom of the variance of a mean, `[R]`, from the `residuals` of its clusters, `[R, M]`:
    sum of a cluster less its expected sum.

    A variance from M values of kurtosis k has a squared coefficient of variation of (k - 1) / M, which a chi-squared
    variable shares whose degrees of freedom are 2 M / (k - 1) (Satterthwaite 1946). At least 1 and at most
    `num_clusters` - 1, the effective number of clusters less one; that if all residuals are 0.
    """
    squares = (residuals**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = residuals.shape[1] * (residuals**4).sum(axis=1) / squares**2
        freedom = 2 * residuals.shape[1] / (kurtosis - 1)
    most = max(1.0, num_clusters - 1)
    freedom = np.where((squares > 0) & (kurtosis > 1) & np.isfinite(freedom), freedom, most)
    return np.clip(freedom, 1.0, most)
