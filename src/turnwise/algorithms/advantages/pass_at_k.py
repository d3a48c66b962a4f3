"""Credit for the best member of a group: what it adds to the group's maximum (arXiv 2503.19595, with k the group
size)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from turnwise.algorithms.advantages.groups import compute_totals, compute_zeros, has_signal, select_scored
from turnwise.algorithms.advantages.grpo import Deviation, compute_scale
from turnwise.algorithms.credit import CreditFunction, CreditMethod, build_outcome_credit
from turnwise.algorithms.options import check_choice, check_range


def compute_pass_at_k_advantages(
    rewards: Sequence[float | None], *, deviation: Deviation = "sample", epsilon: float = 1e-6
) -> list[float | None]:
    """`A_i = (max of all - max of the others) / (std + epsilon)`.

    Only a strictly best member has a nonzero advantage: `(r_(1) - r_(2)) / (std + epsilon)`. `std` is that of the
    group's scored rewards ("sample": n-1, "population": n, "none": no division). None is left out. With a tie for the
    best, in a group of one and in a constant group (range within 1e-6 of its scale), all get exactly 0.0; verl raises
    for a group of one. Raises ValueError when a reward is not finite or epsilon is negative.
    """
    check_range("epsilon", epsilon, 0)
    scored = sorted(select_scored(rewards))
    if not has_signal(rewards) or not has_signal(scored[-2:]):
        return compute_zeros(rewards)
    best = (scored[-1] - scored[-2]) / compute_scale(scored, deviation=deviation, epsilon=epsilon)
    return [None if r is None else best if r == scored[-1] else 0.0 for r in rewards]


def build_pass_at_k(*, deviation: Deviation = "sample", epsilon: float = 1e-6) -> CreditFunction:
    """Best-of-group credit over the total rewards of each group."""
    check_choice("deviation", deviation, get_args(Deviation))
    check_range("epsilon", epsilon, 0)
    return build_outcome_credit(
        lambda members: compute_pass_at_k_advantages(compute_totals(members), deviation=deviation, epsilon=epsilon)
    )


PASS_AT_K = CreditMethod(
    name="pass_at_k",
    aliases=("Pass@k training",),
    summary="what the best of the group adds to its maximum",
    formula="A = (max - max of the others) / (std + epsilon)",
    paper="2503.19595",
    defaults={"deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0",
    build=build_pass_at_k,
)
