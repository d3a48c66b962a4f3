"""A gate around shaped rewards: shaping may rank right answers, but must not rank wrong ones."""

from __future__ import annotations

from collections.abc import Sequence


def gate_group(rewards: Sequence[float], metric: Sequence[float]) -> list[float]:
    """Return the shaped rewards of a group, or 0 for every member if none of them has a metric of at least 1.

    Length penalties, format parts and judge scores differ between wrong answers too. Normalised within a group in which
    all failed, these differences would become the whole signal, at full size. Equal rewards give an advantage of
    exactly 0 under every group-relative estimator.

    Args:
        rewards: shaped rewards.
        metric: the task's actual measure of success (exact match), per member.

    Raises:
        ValueError: the lists differ in length.
    """
    if len(rewards) != len(metric):
        raise ValueError(f"{len(rewards)} rewards but {len(metric)} metrics; pass one of each per member")
    return list(rewards) if any(value >= 1 for value in metric) else [0.0] * len(rewards)
