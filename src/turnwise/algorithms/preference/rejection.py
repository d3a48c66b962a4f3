"""Selects trajectories to fine-tune on: best of n, and rising thresholds (ReST: arXiv 2308.08998)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence


def select_best_of_n(
    rewards: Sequence[float | None],
    *,
    num_kept: int = 1,
    min_reward: float = -math.inf,
    contents: Sequence[Hashable] | None = None,
) -> list[int]:
    """Return the indices of the `num_kept` highest rewards of one task, best first; ties go to the lower index.

    None rewards and rewards below `min_reward` are never kept, and of several with equal `contents` only the best, so
    fewer (or none) may be returned; without contents all count as different. RFT collects distinct ones (arXiv
    2308.01825), the cap per task is SWE-smith's (arXiv 2504.21798). Raises ValueError when a reward is NaN, `num_kept`
    is less than 1, or the numbers of contents and rewards differ.
    """
    if num_kept < 1:
        raise ValueError(f"num_kept is {num_kept}; it must be at least 1")
    keys = range(len(rewards)) if contents is None else contents
    if len(keys) != len(rewards):
        raise ValueError(f"{len(rewards)} rewards but {len(keys)} contents; pass one of each per member")
    first: dict[Hashable, int] = {}
    for _, index in sorted((-reward, index) for index, reward in _numbers(rewards) if reward >= min_reward):
        first.setdefault(keys[index], index)
    return list(first.values())[:num_kept]


def compute_rest_thresholds(*, first: float, last: float, num_steps: int) -> list[float]:
    """Return ReST's rising bar: `num_steps` evenly spaced thresholds from `first` to `last`.

    Each improve step filters the same samples anew. One step gives `[last]`. Raises ValueError when the bar would fall
    or `num_steps` is less than 1.
    """
    if num_steps < 1 or not first <= last:
        raise ValueError(
            f"thresholds go from {first} to {last} in {num_steps} steps; use at least one step and a last threshold "
            "not below the first"
        )
    if num_steps == 1:
        return [last]
    return [first + (last - first) * step / (num_steps - 1) for step in range(num_steps)]


def _numbers(rewards: Sequence[float | None]) -> list[tuple[int, float]]:
    for index, reward in enumerate(rewards):
        if reward is not None and math.isnan(reward):
            raise ValueError(f"the reward of member {index} is NaN; an unscorable trajectory must have reward None")
    return [(index, reward) for index, reward in enumerate(rewards) if reward is not None]
