"""Several rewards, each normalised separately before they are added (GDPO, arXiv 2601.05242)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.advantages.whitening import compute_whitened, whiten_tokens
from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    TokenAdvantages,
    broadcast_outcome,
    group_indices,
)
from turnwise.algorithms.options import check_choice, check_range

Normalization = Literal["trajectories", "tokens", "none"]


def compute_gdpo_advantages(
    parts: Sequence[Mapping[str, float] | None],
    *,
    weights: Mapping[str, float],
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
) -> list[float | None]:
    """`A_i = sum_k w_k * GRPO(r^(k))_i` over one group, before any batch normalisation.

    Args:
        parts: named rewards per member; None where the member could not be scored: it is left out of every statistic.
        weights: which parts count and how much.
        deviation, epsilon: as in `compute_grpo_advantages`.

    Returns:
        One number per member. A group of one gets 0.0; a part that is constant in the group contributes exactly 0.0, so
        that it neither drowns out nor dilutes the others.

    Raises:
        ValueError: a member lacks a weighted part, or a part is not finite.
    """
    result: list[float | None] = [None if p is None else 0.0 for p in parts]
    for name, weight in weights.items():
        for part in parts:
            if part is not None and name not in part:
                raise ValueError(
                    f"part {name!r} is missing; this reward has only {sorted(part)}; return every part every time (0.0 "
                    "where it does not apply)"
                )
        for index, value in enumerate(
            compute_grpo_advantages(
                [None if p is None else p[name] for p in parts], deviation=deviation, epsilon=epsilon
            )
        ):
            if value is not None:
                result[index] = (result[index] or 0.0) + weight * value
    return result


def build_gdpo(
    *,
    weights: Mapping[str, float] | None = None,
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
    normalization: Normalization = "trajectories",
) -> CreditFunction:
    """GDPO over `parts`; the weighted outcome and the turn rewards are not read.

    Args:
        weights: weight by part; None: every part that occurs in the batch, with weight 1.
        deviation, epsilon: for the normalisation inside a group; epsilon also for that of the batch.
        normalization: the sums are whitened over the batch, each trajectory counting once ("trajectories", the paper
            and TRL) or once per sampled token ("tokens", verl), or left alone ("none").

    A group in which every part is constant gets 0 before the batch step, which then shifts it by the batch mean.
    """
    check_choice("deviation", deviation, get_args(Deviation))
    check_choice("normalization", normalization, get_args(Normalization))
    check_range("epsilon", epsilon, 0)
    if weights is not None and not (isinstance(weights, Mapping) and weights):
        raise ValueError(
            f"weights is {weights!r}; pass a mapping from part name to weight with at least one entry, or None to "
            "weight all parts by 1"
        )

    def compute(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        parts = [None if trajectory.reward is None else trajectory.parts for trajectory in trajectories]
        used = (
            weights
            if weights is not None
            else dict.fromkeys(sorted({name for part in parts if part is not None for name in part}), 1.0)
        )
        sums: list[float | None] = [None] * len(trajectories)
        for members in group_indices([trajectory.group for trajectory in trajectories]):
            values = compute_gdpo_advantages(
                [parts[i] for i in members], weights=used, deviation=deviation, epsilon=epsilon
            )
            for index, value in zip(members, values, strict=True):
                sums[index] = value
        if normalization == "trajectories":
            scored = [index for index, value in enumerate(sums) if value is not None]
            whitened = compute_whitened([np.array([value]) for value in sums if value is not None], epsilon=epsilon)
            for index, row in zip(scored, whitened, strict=True):
                sums[index] = float(row[0])
        advantages = broadcast_outcome(trajectories, sums)
        return whiten_tokens(advantages, epsilon=epsilon) if normalization == "tokens" else advantages

    return compute


GDPO = CreditMethod(
    name="gdpo",
    summary="several rewards, each normalised by itself, then added",
    formula="A = whiten(sum_k w_k (r_k - mean_k) / (std_k + epsilon))",
    paper="2601.05242",
    defaults={"weights": None, "deviation": "sample", "epsilon": 1e-6, "normalization": "trajectories"},
    group_of_one="0 before the batch step",
    constant_group="0 before the batch step",
    needs=("parts",),
    build=build_gdpo,
)
