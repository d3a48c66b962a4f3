"""Shared by all group-relative estimators: which rewards count, and when a group has no signal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.algorithms.credit import CreditTrajectory, compute_total_reward

SIGNAL_TOLERANCE = 1e-6
"""Range of rewards, as a share of their scale, below which a group is constant: such differences are rounding."""


def select_scored(rewards: Sequence[float | None]) -> list[float]:
    """Return the rewards that are not None. Raises ValueError when one is not finite."""
    scored = [r for r in rewards if r is not None]
    for reward in scored:
        if not math.isfinite(reward):
            raise ValueError(f"reward {reward} is not finite; an unscorable trajectory must be None (Invalid)")
    return scored


def has_signal(rewards: Sequence[float | None]) -> bool:
    """Whether scored rewards differ by more than 1e-6 of their scale, so that a baseline leaves an advantage.

    False for an empty group or a group of one. Compares the largest with the smallest, never a standard deviation: that
    of [0.1] * 3 is not 0 in floating point.
    """
    scored = [r for r in rewards if r is not None]
    if len(scored) < 2:
        return False
    return max(scored) - min(scored) > SIGNAL_TOLERANCE * max(1e-12, max(abs(r) for r in scored))


def compute_zeros(rewards: Sequence[float | None]) -> list[float | None]:
    """Return the advantages of a group without signal: exactly 0.0 per scored member, None for the others."""
    return [None if r is None else 0.0 for r in rewards]


def compute_totals(members: Sequence[CreditTrajectory]) -> list[float | None]:
    """Return the total reward (outcome plus turn rewards) per member."""
    return [compute_total_reward(member) for member in members]
