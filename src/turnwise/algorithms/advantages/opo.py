"""The length-weighted optimal baseline (OPO: Hao et al. 2025, arXiv 2505.23585)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.algorithms.advantages.groups import compute_totals, compute_zeros, has_signal, select_scored
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory, build_outcome_credit


def compute_opo_advantages(rewards: Sequence[float | None], lengths: Sequence[int]) -> list[float | None]:
    """`A_i = r_i - sum_j(L_j r_j) / sum_j(L_j)`.

    The baseline minimises the variance if a gradient's squared norm is proportional to the length.

    Args:
        rewards: one total per member; None is left out.
        lengths: sampled tokens per member (observations never count), at least 0.

    Returns:
        One advantage per member. A group of one, a constant group (range within 1e-6 of its scale) and a group without
        a single sampled token get exactly 0.0. A member of length 0 does not change the baseline. No deviation, no
        epsilon.

    Raises:
        ValueError: a reward is not finite, a length is negative, or there are not as many lengths as rewards.
    """
    if len(lengths) != len(rewards):
        raise ValueError(f"{len(lengths)} lengths for {len(rewards)} rewards; pass one length per member")
    if any(length < 0 for length in lengths):
        raise ValueError(f"length {min(lengths)} is negative; it must be the number of sampled tokens")
    select_scored(rewards)
    weights = [(length, r) for length, r in zip(lengths, rewards, strict=True) if r is not None]
    total = sum(length for length, _ in weights)
    if not has_signal(rewards) or total == 0:
        return compute_zeros(rewards)
    baseline = math.fsum(length * r for length, r in weights) / total
    return [None if r is None else r - baseline for r in rewards]


def build_opo() -> CreditFunction:
    """OPO over the total rewards of each group, weighted by sampled tokens."""

    def estimate(members: Sequence[CreditTrajectory]) -> list[float | None]:
        lengths = [sum(turn.num_tokens for turn in member.turns) for member in members]
        return compute_opo_advantages(compute_totals(members), lengths)

    return build_outcome_credit(estimate)


OPO = CreditMethod(
    name="opo",
    summary="outcome against the length-weighted mean of the group",
    formula="A = r - sum(L r) / sum(L)",
    paper="2505.23585",
    group_of_one="0",
    constant_group="0",
    build=build_opo,
)
