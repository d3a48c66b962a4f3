"""Group-in-group credit (GiGPO, arXiv 2505.10978): turns taken from the same state are compared with each other.

Equal keys count as equal states. An observation that hides something (an inventory) merges different states; use a hash
of the environment's state if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.algorithms.advantages.groups import has_signal
from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory
from turnwise.algorithms.turns.groups import (
    TurnAdvantages,
    add_outcome,
    build_group_credit,
    check_comparison,
    check_finite,
    compute_returns,
    turn_rewards,
)


def compute_anchor_advantages(
    returns: Sequence[Sequence[float]],
    states: Sequence[Sequence[str | None]],
    *,
    deviation: Deviation = "none",
    epsilon: float = 1e-6,
) -> TurnAdvantages:
    """`A^S_ik = (G_ik - baseline(s)) / F(s)` over all turns of a group that start in the same state s.

    Each trajectory counts once per state, however often it returned to it: `baseline(s)` is the mean over trajectories
    of the mean return of their visits, and with "sample" (the paper's mean_std_norm) `F(s)^2 = sum_i mean_visits (G -
    baseline)^2 / (n - 1)`, plus epsilon on F; "population" divides by n, "none" (mean_norm, the default) is F = 1. The
    original counts every visit, so that a trajectory that walks in a circle is compared with itself; if no state is
    visited twice, both agree. A state that only one trajectory visited, a state key of None, and a state with equal
    returns get exactly 0. Averaged over visits, then summed over trajectories, the advantages of a state are 0.

    Raises:
        ValueError: a return is not finite, epsilon is negative, or a row does not have one state per turn.
    """
    check_comparison(deviation=deviation, epsilon=epsilon)
    advantages = [[0.0] * len(row) for row in returns]
    visits: dict[str, dict[int, list[int]]] = {}
    for i, (row, keys) in enumerate(zip(returns, states, strict=True)):
        check_finite(row, "turn return")
        for k, (_, key) in enumerate(zip(row, keys, strict=True)):
            if key is not None:
                visits.setdefault(key, {}).setdefault(i, []).append(k)
    for by_trajectory in visits.values():
        at_state = {i: [returns[i][k] for k in turns] for i, turns in by_trajectory.items()}
        if len(at_state) < 2 or not has_signal([value for values in at_state.values() for value in values]):
            continue
        baseline = math.fsum(math.fsum(values) / len(values) for values in at_state.values()) / len(at_state)
        scale = 1.0
        if deviation != "none":
            squares = math.fsum(
                math.fsum((value - baseline) ** 2 for value in values) / len(values) for values in at_state.values()
            )
            scale = math.sqrt(squares / (len(at_state) - (1 if deviation == "sample" else 0))) + epsilon
        for i, turns in by_trajectory.items():
            for k in turns:
                advantages[i][k] = (returns[i][k] - baseline) / scale
    return advantages


def compute_gigpo_advantages(
    outcomes: Sequence[float],
    rewards: Sequence[Sequence[float]],
    states: Sequence[Sequence[str | None]],
    *,
    omega: float = 1.0,
    gamma: float = 0.95,
    deviation: Deviation = "none",
    epsilon: float = 1e-6,
) -> TurnAdvantages:
    """`A_ik = A^E_i + omega A^S_ik` for one group.

    `A^E` compares undiscounted episode rewards (outcome plus turn rewards) as `compute_grpo_advantages` does. `A^S` is
    `compute_anchor_advantages` of the returns `G_k = sum_{l >= k} gamma^(l-k) r_l`, the outcome counted at the last
    turn. Both use the same deviation. A group of one gets exactly 0 (in the original a lone trajectory gets its
    reward). A constant group gets `A^E = 0` exactly; `A^S` may still distinguish trajectories that reached the same
    outcome in fewer turns from the same state (gamma < 1).

    Raises:
        ValueError: a reward is not finite, gamma lies outside [0, 1], or a row does not have one state per turn.
    """
    totals = [outcome + math.fsum(row) for outcome, row in zip(outcomes, rewards, strict=True)]
    episode = [value or 0.0 for value in compute_grpo_advantages(totals, deviation=deviation, epsilon=epsilon)]
    returns = [
        compute_returns(add_outcome(row, outcome), gamma) for outcome, row in zip(outcomes, rewards, strict=True)
    ]
    steps = compute_anchor_advantages(returns, states, deviation=deviation, epsilon=epsilon)
    return [[value + omega * step for step in row] for value, row in zip(episode, steps, strict=True)]


def build_gigpo(
    *, omega: float = 1.0, gamma: float = 0.95, deviation: Deviation = "none", epsilon: float = 1e-6
) -> CreditFunction:
    """`compute_gigpo_advantages` on each group, with `CreditTurn.state` and `CreditTurn.reward`."""
    check_comparison(deviation=deviation, epsilon=epsilon, gamma=gamma)

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        rewards = [turn_rewards(member) for member in members]
        states = [[turn.state for turn in member.turns] for member in members]
        return compute_gigpo_advantages(
            outcomes, rewards, states, omega=omega, gamma=gamma, deviation=deviation, epsilon=epsilon
        )

    return build_group_credit(compute)


GIGPO = CreditMethod(
    name="gigpo",
    summary="GRPO over episodes plus a comparison of the returns of all turns taken from the same state",
    formula="A_ik = norm(R)_i + omega * (G_ik - mean_s G) / F(s)",
    paper="2505.10978",
    defaults={"omega": 1.0, "gamma": 0.95, "deviation": "none", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0 in the episode part; the step part where returns from one state differ (gamma < 1)",
    needs=("state",),
    build=build_gigpo,
)
