"""What an evaluation of n tasks can tell: its widest interval, and the differences that two of them see.

At a success of 50%, where intervals are widest, and for two independent evaluations. Two evaluations of the same tasks
are paired and see more (`turnwise compare`)."""

from __future__ import annotations

import math

from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.power import POWER, compute_power

BASE = 0.5
"""The success from which differences are counted."""


def compute_half_width(count: int) -> float:
    """Return half the width of the 95% Wilson interval of a share of `count` tasks at a success of 50%; 0.5 with no
    task."""
    low, high = compute_wilson_interval(count / 2, count)
    return (high - low) / 2


def compute_power_of(count: int, difference: float) -> float:
    """Return the probability that two evaluations of `count` tasks differ significantly at 5% if their shares are
    `BASE` and `BASE + difference`; 0.0 with no task.

    The standard error is that of the difference of two independent shares, unpooled."""
    if count == 0:
        return 0.0
    other = BASE + difference
    error = math.sqrt((BASE * (1 - BASE) + other * (1 - other)) / count)
    return compute_power(difference, standard_error=error)


def compute_visible_difference(count: int) -> float | None:
    """Return the smallest difference, in tenths of a point, that is seen with a power of 80%; None if none is."""
    for tenth in range(1, round((1 - BASE) * 1000) + 1):
        if compute_power_of(count, tenth / 1000) >= POWER:
            return tenth / 1000
    return None
