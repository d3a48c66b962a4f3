"""Which differences an evaluation can see."""

from __future__ import annotations

import math

from scipy import special

LEVEL = 0.05
"""Two-sided error of the first kind."""
POWER = 0.8
"""Probability with which the smallest visible difference is found."""


def compute_power(difference: float, *, standard_error: float, freedom: float = math.inf) -> float:
    """Return the probability that a difference is found, on either side, at a level of 5%: that a noncentral t variable
    exceeds Student's quantile. 1 with a standard error of 0, unless there is no difference."""
    if standard_error == 0:
        return 1.0 if difference else LEVEL
    critical, shift = float(special.stdtrit(_finite(freedom), 1 - LEVEL / 2)), abs(difference) / standard_error
    if freedom > MANY:
        return float(special.ndtr(shift - critical) + special.ndtr(-shift - critical))
    return 1.0 - float(special.nctdtr(freedom, shift, critical)) + float(special.nctdtr(freedom, shift, -critical))


def compute_detectable(*, standard_error: float, freedom: float = math.inf, power: float = POWER) -> float:
    """Return the smallest difference that is found with a probability of `power` at a two-sided level of 5%: its
    standard error times the sum of Student's quantiles for both (Bloom 1995)."""
    quantiles = special.stdtrit(_finite(freedom), [1 - LEVEL / 2, power])
    return float(quantiles.sum()) * standard_error


MANY = 1e6
"""Degrees of freedom above which Student's distribution is taken for the normal one."""


def _finite(freedom: float) -> float:
    return min(freedom, MANY)
