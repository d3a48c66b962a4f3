"""Stepwise progress attribution (SPA-RL, arXiv 2505.20732): a learned division of the outcome among the turns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.algorithms.advantages.grpo import Deviation
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory
from turnwise.algorithms.turns.groups import (
    TurnAdvantages,
    build_group_credit,
    check_comparison,
    check_finite,
    require_turn_values,
)
from turnwise.algorithms.turns.multi_turn_grpo import compute_multi_turn_advantages


def compute_progress_rewards(
    progress: Sequence[float],
    grounding: Sequence[float],
    outcome: float,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    conserve: bool = False,
) -> list[float]:
    """`r_k = alpha c_k + beta g_k`: predicted contribution and whether the action could be carried out.

    Args:
        progress: `c_k` per turn, trained so that their sum is the outcome.
        grounding: `g_k` per turn.
        outcome: used only with `conserve`.
        conserve: add `(outcome - sum c) / T` to every `c_k` first, so that an inaccurate predictor shifts credit
            between turns but never adds any. The paper relies on the predictor alone (False).

    Raises:
        ValueError: a number is not finite, or the lists differ in length. alpha and beta of the paper are not
            confirmed; 1 is ours.
    """
    check_finite(progress, "progress")
    check_finite(grounding, "grounding")
    residual = (outcome - math.fsum(progress)) / len(progress) if conserve and progress else 0.0
    return [alpha * (c + residual) + beta * g for c, g in zip(progress, grounding, strict=True)]


def build_spa(
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    conserve: bool = False,
    gamma: float = 1.0,
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
) -> CreditFunction:
    """Progress rewards, compared within the turn index, summed from each turn on.

    They are `CreditTurn.progress`, with the grounding in `CreditTurn.reward`. The paper feeds these rewards to PPO with
    a critic; comparing within the group instead is ours. The outcome has an effect only through the predictor (and
    through `conserve`).
    """
    check_comparison(deviation=deviation, epsilon=epsilon, gamma=gamma)

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        rewards = []
        for member, outcome in zip(members, outcomes, strict=True):
            progress = require_turn_values((turn.progress for turn in member.turns), "progress")
            grounding = [turn.reward for turn in member.turns]
            rewards.append(
                compute_progress_rewards(progress, grounding, outcome, alpha=alpha, beta=beta, conserve=conserve)
            )
        return compute_multi_turn_advantages(
            [0.0] * len(members), rewards, gamma=gamma, deviation=deviation, epsilon=epsilon
        )

    return build_group_credit(compute)


SPA = CreditMethod(
    name="spa",
    aliases=("SPA-RL",),
    summary="a learned split of the outcome over the turns, plus grounding, compared at the same turn index",
    formula="A_ik = sum_{j>=k} gamma^(j-k) norm(alpha c + beta g)_ij",
    paper="2505.20732",
    defaults={"alpha": 1.0, "beta": 1.0, "conserve": False, "gamma": 1.0, "deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0 where predicted contributions agree at every turn index",
    needs=("progress",),
    build=build_spa,
)
