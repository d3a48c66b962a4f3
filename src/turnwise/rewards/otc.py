"""Reward for right answers with few tool calls (OTC-GRPO, arXiv 2504.14870).

The formulas are known second-hand; the paper's constants (its overall factor, its smoothing c) are not known: we use 1
for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def compute_call_factor(num_calls: int, fewest_calls: int) -> float:
    """Compute the factor in [0, 1] for m calls, where n is the smallest number known to lead to a right answer.

    `sin(f pi / (2 n))` with `f = 2 n m / (m + n)`: 1 at m = n, falling towards 0 with more calls, 0 at m = 0 < n. With
    n = 0 it is `cos(m pi / (2 m + c))`: 1 without calls, 1/2 with one.
    """
    if fewest_calls == 0:
        return math.cos(num_calls * math.pi / (2 * num_calls + 1))
    return math.sin(num_calls * math.pi / (num_calls + fewest_calls))


def compute_otc_rewards(rewards: Sequence[float], num_calls: Sequence[int], correct: Sequence[bool]) -> list[float]:
    """Multiply each reward of a group by `compute_call_factor`, with n the fewest calls of a correct member.

    The product (not a sum) keeps a wrong answer with no calls from beating a right one. A group without a correct
    member keeps its rewards.

    Raises:
        ValueError: lengths differ, or a reward is negative, which a factor would improve.
    """
    fewest = min((calls for calls, right in zip(num_calls, correct, strict=True) if right), default=None)
    if min(rewards, default=0.0) < 0:
        raise ValueError(f"a reward is {min(rewards)}; a factor can only scale rewards of at least 0")
    factors = [1.0 if fewest is None else compute_call_factor(calls, fewest) for calls in num_calls]
    return [reward * factor for reward, factor in zip(rewards, factors, strict=True)]
