"""Maximum-likelihood RL: the centred reward over the success rate (MaxRL, arXiv 2602.02710)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.algorithms.advantages.groups import compute_totals, compute_zeros, has_signal, select_scored
from turnwise.algorithms.credit import CreditFunction, CreditMethod, build_outcome_credit


def compute_max_rl_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """`A_i = (r_i - mean) / mean` over the scored members: the gradient of the log of the success rate.

    None is left out. A group of one, a constant group (range within 1e-6 of its scale) and an all-zero group get
    exactly 0.0. No deviation, no epsilon. Invariant to the scale of the reward, not to a shift.

    Deviation: a negative reward is refused. With mixed signs the mean may be near 0 or below, where the quotient
    explodes or flips its sign (other code adds an epsilon or returns 0 there).

    Raises:
        ValueError: a reward is not finite, or negative.
    """
    scored = select_scored(rewards)
    if scored and min(scored) < 0:
        raise ValueError(
            f"reward {min(scored)} is negative; MaxRL divides by the mean reward: map rewards to [0, 1] or use grpo"
        )
    if not has_signal(rewards):
        return compute_zeros(rewards)
    mean = math.fsum(scored) / len(scored)
    return [None if r is None else (r - mean) / mean for r in rewards]


def build_max_rl() -> CreditFunction:
    """MaxRL over the total rewards of each group."""
    return build_outcome_credit(lambda members: compute_max_rl_advantages(compute_totals(members)))


MAX_RL = CreditMethod(
    name="max_rl",
    summary="gradient of the log success rate; rewards must not be negative",
    formula="A = (r - mean) / mean",
    paper="2602.02710",
    group_of_one="0",
    constant_group="0",
    build=build_max_rl,
)
