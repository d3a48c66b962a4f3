"""The leave-one-out baseline (RLOO: Ahmadian et al. 2024, arXiv 2402.14740)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.algorithms.advantages.groups import compute_totals, compute_zeros, has_signal, select_scored
from turnwise.algorithms.credit import CreditFunction, CreditMethod, build_outcome_credit


def compute_rloo_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """`A_i = r_i - mean of the other scored rewards = n / (n - 1) * (r_i - mean)`.

    None stays None and is left out. A group of one has no others and gets exactly 0.0 (the raw reward in verl's loop
    form, 0 in its vectorised form); a constant group (range within 1e-6 of its scale) gets exactly 0.0. No deviation,
    no epsilon. Raises ValueError when a reward is not finite.
    """
    scored = select_scored(rewards)
    if not has_signal(rewards):
        return compute_zeros(rewards)
    mean = math.fsum(scored) / len(scored)
    factor = len(scored) / (len(scored) - 1)
    return [None if r is None else factor * (r - mean) for r in rewards]


def build_rloo() -> CreditFunction:
    """RLOO over the total rewards of each group."""
    return build_outcome_credit(lambda members: compute_rloo_advantages(compute_totals(members)))


RLOO = CreditMethod(
    name="rloo",
    aliases=("REINFORCE leave-one-out",),
    summary="outcome against the mean of the others",
    formula="A = r - mean of the others = n / (n - 1) (r - mean)",
    paper="2402.14740",
    group_of_one="0",
    constant_group="0",
    build=build_rloo,
)
