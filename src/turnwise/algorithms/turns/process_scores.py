"""Process-reward-model scores per turn as rewards (process supervision with GRPO, arXiv 2402.03300, section 4.1.3)."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory
from turnwise.algorithms.turns.groups import (
    TurnAdvantages,
    build_group_credit,
    check_comparison,
    check_finite,
    compute_returns,
    normalize_pooled,
    require_turn_values,
)


def compute_process_advantages(
    outcomes: Sequence[float],
    scores: Sequence[Sequence[float]],
    *,
    outcome_coefficient: float = 0.0,
    gamma: float = 1.0,
    deviation: Deviation = "sample",
    epsilon: float = 1e-6,
) -> TurnAdvantages:
    """`A_ik = sum_{l >= k} gamma^(l-k) norm(s)_il + outcome_coefficient * norm(R)_i`.

    norm(s) pools all turns of all members. The paper's form is gamma 1 and outcome_coefficient 0; it does not name its
    deviation. A group of one gets exactly 0. A group whose scores are all equal gets exactly 0 in the process part;
    equal outcomes get exactly 0 in the outcome part. Summing normalised scores favours long trajectories when their
    scores lie above the pool's mean: a property of the formula that is kept.

    Raises:
        ValueError: a number is not finite, or gamma lies outside [0, 1].
    """
    check_finite((score for row in scores for score in row), "process score")
    process = [compute_returns(row, gamma) for row in normalize_pooled(scores, deviation=deviation, epsilon=epsilon)]
    outcome_part = [value or 0.0 for value in compute_grpo_advantages(outcomes, deviation=deviation, epsilon=epsilon)]
    return [
        [value + outcome_coefficient * outcome for value in row]
        for outcome, row in zip(outcome_part, process, strict=True)
    ]


def build_process_scores(
    *, outcome_coefficient: float = 0.0, gamma: float = 1.0, deviation: Deviation = "sample", epsilon: float = 1e-6
) -> CreditFunction:
    """`compute_process_advantages` on each group, with `CreditTurn.process_score`; turn rewards are not read."""
    check_comparison(deviation=deviation, epsilon=epsilon, gamma=gamma)

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        scores = [
            require_turn_values((turn.process_score for turn in member.turns), "process_score") for member in members
        ]
        return compute_process_advantages(
            outcomes, scores, outcome_coefficient=outcome_coefficient, gamma=gamma, deviation=deviation, epsilon=epsilon
        )

    return build_group_credit(compute)


PROCESS_SCORES = CreditMethod(
    name="process_scores",
    aliases=("GRPO+PS",),
    summary="a process reward model's scores, pooled over the group's turns, summed from each turn on",
    formula="A_ik = sum_{l>=k} gamma^(l-k) norm_pool(s)_il + outcome_coefficient * norm(R)_i",
    paper="2402.03300",
    defaults={"outcome_coefficient": 0.0, "gamma": 1.0, "deviation": "sample", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0 in the outcome part; the process part remains where scores differ",
    needs=("process_score",),
    build=build_process_scores,
)
