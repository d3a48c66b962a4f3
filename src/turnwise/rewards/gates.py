"""Gates around shaped rewards: shaping may rank right answers, and must not rank wrong ones."""

from __future__ import annotations

import math
from collections.abc import Sequence


def gate_by_format(reward: float, *, well_formed: bool, floor: float = 0.0) -> float:
    """The reward of a well-formed reply; of any other at most `floor` (a lower reward stays)."""
    return reward if well_formed else min(reward, floor)


def gate_group(
    rewards: Sequence[float | None], metric: Sequence[float | None], *, success: float = 1.0, floor: float = 0.0
) -> list[float | None]:
    """The shaped rewards of a group, or `floor` for every member when none of them succeeded.

    Length penalties, format parts and judge scores differ between wrong answers too. Normalised within a group in which
    all failed, they would become the whole signal, at full size. Equal rewards give an advantage of exactly 0 under
    every group-relative estimator.

    Args:
        rewards: shaped rewards; None where a member could not be scored, which stays None.
        metric: what the task is about (exact match), per member; None is not a success.
        success: a metric from here on is a success.

    Raises:
        ValueError: the lists differ in length, or a metric is NaN.
    """
    if len(rewards) != len(metric):
        raise ValueError(f"{len(rewards)} rewards but {len(metric)} metrics; give one of each per member")
    if any(value is not None and math.isnan(value) for value in metric):
        raise ValueError(f"a metric is NaN in {list(metric)}; give None where a member could not be scored")
    if any(value is not None and value >= success for value in metric):
        return list(rewards)
    return [None if reward is None else floor for reward in rewards]
