"""Reward for right answers with few tool calls (OTC, arXiv 2504.14870).

The formulas are known second-hand, the paper's constants (its overall factor, its smoothing) are not: 1 is ours for
both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def compute_call_factor(num_calls: int, *, smoothing: float = 1.0) -> float:
    """OTC-PPO's `cos(m pi / (2 m + c))`, in (0, 1]: 1 without calls, towards 0 with many.

    Args:
        num_calls: m.
        smoothing: c above 0; the larger, the more calls are tolerated.

    Raises:
        ValueError: num_calls is negative or smoothing not above 0.
    """
    _check(num_calls, smoothing)
    return math.cos(num_calls * math.pi / (2 * num_calls + smoothing))


def compute_group_call_factor(num_calls: int, minimal_calls: int, *, smoothing: float = 1.0) -> float:
    """OTC-GRPO's factor in [0, 1]: `sin(f pi / (2 n))` with `f = 2 n m / (m + n)`.

    m is the number of calls, n the fewest known to give a right answer. 1 at m = n, falling towards 0 with more calls,
    0 at m = 0 < n. With n = 0 it is `compute_call_factor`, which is 1 at m = 0.

    Raises:
        ValueError: a number of calls is negative, or smoothing not above 0.
    """
    _check(num_calls, smoothing)
    if minimal_calls < 0:
        raise ValueError(f"minimal_calls is {minimal_calls}; it must be at least 0")
    if minimal_calls == 0:
        return compute_call_factor(num_calls, smoothing=smoothing)
    return math.sin(num_calls * math.pi / (num_calls + minimal_calls))


def find_minimal_calls(num_calls: Sequence[int], correct: Sequence[bool]) -> int | None:
    """The fewest calls among the correct members of a group; None where none is correct."""
    return min((calls for calls, right in zip(num_calls, correct, strict=True) if right), default=None)


def compute_otc_rewards(
    rewards: Sequence[float], num_calls: Sequence[int], correct: Sequence[bool], *, smoothing: float = 1.0
) -> list[float]:
    """OTC-GRPO's reward of a group: each correctness reward times `compute_group_call_factor`.

    The product (not a sum) keeps a wrong answer with no calls from beating a right one. A group without a correct
    member keeps its rewards.

    Raises:
        ValueError: lengths differ, a reward is negative (a factor would make it better) or not finite, or a number of
        calls is negative.
    """
    for reward in rewards:
        if not (math.isfinite(reward) and reward >= 0):
            raise ValueError(f"reward {reward} cannot be scaled by a factor; it must be finite and at least 0")
    minimal = find_minimal_calls(num_calls, correct)
    if minimal is None:
        return list(rewards)
    factors = [compute_group_call_factor(calls, minimal, smoothing=smoothing) for calls in num_calls]
    return [reward * factor for reward, factor in zip(rewards, factors, strict=True)]


def compute_tool_productivity(num_calls: Sequence[int], correct: Sequence[bool]) -> float:
    """Correct answers per tool call over an evaluation; NaN where no call was made."""
    total = sum(calls for calls, _ in zip(num_calls, correct, strict=True))
    return sum(correct) / total if total else math.nan


def _check(num_calls: int, smoothing: float) -> None:
    if num_calls < 0 or not smoothing > 0:
        raise ValueError(
            f"num_calls is {num_calls} and smoothing {smoothing}; calls are at least 0 and smoothing above 0"
        )
