"""Turn rewards and outcome, each normalised within the group, then added per turn (MT-GRPO, arXiv 2505.11821)."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory
from turnwise.algorithms.options import check_range
from turnwise.algorithms.turns.groups import (
    TurnAdvantages,
    build_group_credit,
    check_comparison,
    compute_returns,
    normalize_by_turn_index,
    turn_rewards,
)


def compute_multi_turn_advantages(
    outcomes: Sequence[float],
    rewards: Sequence[Sequence[float]],
    *,
    coefficient: float = 1.0,
    gamma: float = 1.0,
    outcome_gamma: float = 1.0,
    deviation: Deviation = "sample",
    epsilon: float = 1e-4,
) -> TurnAdvantages:
    """`A_ik = outcome_gamma^(T_i-1-k) norm(R)_i + coefficient * sum_{j >= k} gamma^(j-k) norm(r)_ij` for one group.

    `norm(R)` compares outcomes over the whole group; `norm(r)_ij` compares the reward of turn j with turn j of the
    members that have one. The paper's two-turn form (before the tool result `A_out + lambda A_turn`, after it `A_out`)
    is the case in which only turn 0 has rewards that differ. Differences from its code: a trajectory without a tool
    result is not a special case, and a reward credits the turn that earned it and the turns before it rather than
    everything before the first result.

    Args:
        outcomes: one per member, n numbers.
        rewards: per member one number per turn; lengths may differ.
        coefficient: weight of the turn part (lambda).
        gamma: how a turn reward fades towards earlier turns; 0 credits only the turn itself.
        outcome_gamma: how the outcome fades with the distance from the last turn; 1 (the paper) does not fade it.
        deviation, epsilon: for both normalisations, see `compute_grpo_advantages`; 1e-4 and "sample" are the paper's
            code.

    Returns:
        Per member one advantage per turn. A group of one and a group in which everything is equal get exactly 0. With
        one turn and no turn rewards this is GRPO.

    Raises:
        ValueError: a reward is not finite, or a gamma lies outside [0, 1].
    """
    check_range("outcome_gamma", outcome_gamma, 0, 1)
    outcome_part = [value or 0.0 for value in compute_grpo_advantages(outcomes, deviation=deviation, epsilon=epsilon)]
    turn_part = [
        compute_returns(row, gamma) for row in normalize_by_turn_index(rewards, deviation=deviation, epsilon=epsilon)
    ]
    return [
        [outcome_gamma ** (len(row) - 1 - k) * outcome + coefficient * value for k, value in enumerate(row)]
        for outcome, row in zip(outcome_part, turn_part, strict=True)
    ]


def build_multi_turn_grpo(
    *, coefficient: float = 1.0, gamma: float = 1.0, deviation: Deviation = "sample", epsilon: float = 1e-4
) -> CreditFunction:
    """`compute_multi_turn_advantages` on each group, with `CreditTurn.reward` as turn rewards."""
    check_comparison(deviation=deviation, epsilon=epsilon, gamma=gamma)

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        rewards = [turn_rewards(member) for member in members]
        return compute_multi_turn_advantages(
            outcomes, rewards, coefficient=coefficient, gamma=gamma, deviation=deviation, epsilon=epsilon
        )

    return build_group_credit(compute)


MULTI_TURN_GRPO = CreditMethod(
    name="multi_turn_grpo",
    aliases=("MT-GRPO",),
    summary=(
        "outcome and turn rewards, each compared within the group; a turn gets the outcome and the turn rewards from "
        "it on"
    ),
    formula="A_ik = norm(R)_i + coefficient * sum_{j>=k} gamma^(j-k) norm(r)_ij",
    paper="2505.11821",
    defaults={"coefficient": 1.0, "gamma": 1.0, "deviation": "sample", "epsilon": 1e-4},
    group_of_one="0",
    constant_group="0 where turn rewards agree at every turn index; else the turn part",
    build=build_multi_turn_grpo,
)
