"""Fades the outcome with the distance from the last turn, and turn rewards with the distance from theirs."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.algorithms.advantages.grpo import Deviation
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory
from turnwise.algorithms.turns.groups import TurnAdvantages, build_group_credit, check_comparison, turn_rewards
from turnwise.algorithms.turns.multi_turn_grpo import compute_multi_turn_advantages


def compute_discounted_advantages(
    outcomes: Sequence[float],
    rewards: Sequence[Sequence[float]],
    *,
    gamma: float = 0.95,
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
) -> TurnAdvantages:
    """`A_ik = gamma^(T_i-1-k) norm(R)_i + sum_{j >= k} gamma^(j-k) norm(r)_ij`.

    Rewards are compared first and discounted per turn afterwards. Comparing first is ours: discounting before comparing
    would give a group of equal outcomes and unequal lengths a signal. gamma counts turns whatever their token counts.
    With gamma 1 and no turn rewards this is GRPO at any lengths. A group of one and a constant group get exactly 0.

    Raises:
        ValueError: a reward is not finite, or gamma lies outside [0, 1].
    """
    return compute_multi_turn_advantages(
        outcomes, rewards, gamma=gamma, outcome_gamma=gamma, deviation=deviation, epsilon=epsilon
    )


def build_turn_discount(
    *, gamma: float = 0.95, deviation: Deviation = "sample", epsilon: float = 1e-6
) -> CreditFunction:
    """`compute_discounted_advantages` on each group."""
    check_comparison(deviation=deviation, epsilon=epsilon, gamma=gamma)

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        rewards = [turn_rewards(member) for member in members]
        return compute_discounted_advantages(outcomes, rewards, gamma=gamma, deviation=deviation, epsilon=epsilon)

    return build_group_credit(compute)


TURN_DISCOUNT = CreditMethod(
    name="turn_discount",
    summary="GRPO whose advantage fades with the distance from the last turn, plus discounted turn rewards",
    formula="A_ik = gamma^(T-1-k) norm(R)_i + sum_{j>=k} gamma^(j-k) norm(r)_ij",
    paper="textbook discounting, after comparison (ours)",
    defaults={"gamma": 0.95, "deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0 where turn rewards agree at every turn index",
    build=build_turn_discount,
)
