"""Group-relative advantages: GRPO (arXiv 2402.03300, section 4.1.2); without deviation Dr.GRPO (2503.20783)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from turnwise.algorithms.advantages.groups import compute_totals, compute_zeros, has_signal, select_scored
from turnwise.algorithms.credit import CreditFunction, CreditMethod, build_outcome_credit
from turnwise.algorithms.options import check_choice, check_range

Deviation = Literal["sample", "population", "none"]


def compute_grpo_advantages(
    rewards: Sequence[float | None], *, deviation: Deviation = "sample", epsilon: float = 1e-6
) -> list[float | None]:
    """`A_i = (r_i - mean) / (std + epsilon)` over the scored members of one group.

    Args:
        rewards: one total per member, any number of members; None for a member that could not be scored, which is left
            out of mean and standard deviation.
        deviation: "sample" divides by the n-1 standard deviation (verl, TRL, OpenRLHF, SkyRL), "population" by the n
            one (rLLM), "none" not at all (Dr.GRPO, prime-rl). The paper does not say which; frameworks differ by
            sqrt((n-1)/n).
        epsilon: added to the standard deviation; unused with "none".

    Returns:
        One advantage per member, None where the reward was None. A group of one, and a group whose rewards all lie
        within 1e-6 of their scale, gets exactly 0.0: rounding never becomes signal. (In verl a group of one gets its
        raw reward.)

    Raises:
        ValueError: a reward is not finite, or epsilon is negative.
    """
    check_range("epsilon", epsilon, 0)
    scored = select_scored(rewards)
    if not has_signal(rewards):
        return compute_zeros(rewards)
    mean = math.fsum(scored) / len(scored)
    scale = compute_scale(scored, deviation=deviation, epsilon=epsilon)
    return [None if r is None else (r - mean) / scale for r in rewards]


def compute_scale(scored: Sequence[float], *, deviation: Deviation, epsilon: float) -> float:
    """`std + epsilon` of at least two rewards, from two passes in float64; 1.0 with "none"."""
    if deviation == "none":
        return 1.0
    mean = math.fsum(scored) / len(scored)
    squares = math.fsum((r - mean) ** 2 for r in scored)
    return math.sqrt(squares / (len(scored) - (1 if deviation == "sample" else 0))) + epsilon


def build_grpo(*, deviation: Deviation = "sample", epsilon: float = 1e-6) -> CreditFunction:
    """GRPO over the total rewards of each group, the same for every sampled token of a trajectory."""
    check_choice("deviation", deviation, get_args(Deviation))
    check_range("epsilon", epsilon, 0)
    return build_outcome_credit(
        lambda members: compute_grpo_advantages(compute_totals(members), deviation=deviation, epsilon=epsilon)
    )


def build_dr_grpo() -> CreditFunction:
    """Dr.GRPO's advantage: the centred reward. Its constant length divisor belongs to the loss aggregation."""
    return build_grpo(deviation="none")


GRPO = CreditMethod(
    name="grpo",
    summary="outcome against the group's mean, in deviations",
    formula="A = (r - mean) / (std + epsilon)",
    paper="2402.03300",
    defaults={"deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0",
    build=build_grpo,
)

DR_GRPO = CreditMethod(
    name="dr_grpo",
    aliases=("GRPO done right",),
    summary="outcome against the group's mean",
    formula="A = r - mean",
    paper="2503.20783",
    group_of_one="0",
    constant_group="0",
    build=build_dr_grpo,
)
