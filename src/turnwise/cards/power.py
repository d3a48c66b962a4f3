"""How small a difference an evaluation of n tasks can see."""

from __future__ import annotations

import math
from statistics import NormalDist

from turnwise.evaluation.intervals import Z_95, compute_wilson_interval

WANTED_POWER = 0.8
_NORMAL = NormalDist()


def compute_half_width(count: int) -> float:
    """Return half the width of the 95% Wilson interval of a share of `count` tasks at its widest, a success of 50%.

    0.5 with no task.
    """
    low, high = compute_wilson_interval(count / 2, count)
    return (high - low) / 2


def compute_power(count: int, difference: float, base: float = 0.5) -> float:
    """Return the probability that two evaluations of `count` tasks each, with shares `base` and `base + difference`,
    differ significantly at 5% (two-sided z-test of two independent shares, unpooled variance).

    Two evaluations of the same tasks are paired, and see more as far as they agree task by task: this is a lower bound
    as long as their outcomes are not negatively related. 0.0 with no task.
    """
    if count == 0:
        return 0.0
    other = base + difference
    error = math.sqrt((base * (1 - base) + other * (1 - other)) / count)
    if error == 0:
        return float(difference != 0)
    shift = difference / error
    return _NORMAL.cdf(shift - Z_95) + _NORMAL.cdf(-shift - Z_95)


def compute_visible_difference(count: int, base: float = 0.5) -> float | None:
    """Return the smallest difference above `base` that `count` tasks see with a power of 80%, to a tenth of a point;
    None if they see none up to 1."""
    for tenth in range(1, round((1 - base) * 1000) + 1):
        if compute_power(count, tenth / 1000, base) >= WANTED_POWER:
            return tenth / 1000
    return None
