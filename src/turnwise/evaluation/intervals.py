"""Confidence intervals for shares."""

from __future__ import annotations

import math

Z_95 = 1.959963984540054
"""97.5th percentile of the standard normal distribution."""


def compute_wilson_interval(successes: float, count: int, z: float = Z_95) -> tuple[float, float]:
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
