"""Which groups are worth training on (DAPO, arXiv 2503.14476, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.algorithms.advantages.groups import select_scored
from turnwise.algorithms.options import check_range


def is_informative(metrics: Sequence[float | None], *, tolerance: float = 1e-6) -> bool:
    """Whether a group's *metric* varies by more than `tolerance` (DAPO's `0 < number correct < n`).

    Pass the unshaped metric, not the reward that trains: a length penalty makes an all-wrong group's rewards differ
    although it teaches nothing about the task. None (not scored) is left out; a group with fewer than two scored
    members is not informative. The range is compared, never a standard deviation (that of [0.1] * 3 is 1.4e-17, not 0).
    Raises ValueError when a metric is not finite or the tolerance is negative.
    """
    check_range("tolerance", tolerance, 0)
    scored = select_scored(metrics)
    return len(scored) >= 2 and max(scored) - min(scored) > tolerance
