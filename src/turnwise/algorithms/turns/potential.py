"""Potential-based shaping (Ng, Harada and Russell 1999): a dense reward that does not change the best policy."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.algorithms.advantages.grpo import Deviation
from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory
from turnwise.algorithms.options import check_range
from turnwise.algorithms.turns.groups import (
    TurnAdvantages,
    build_group_credit,
    check_comparison,
    check_finite,
    require_turn_values,
)
from turnwise.algorithms.turns.multi_turn_grpo import compute_multi_turn_advantages


def compute_shaping(potentials: Sequence[float], *, gamma: float = 1.0) -> list[float]:
    """`F_k = gamma Phi(s_{k+1}) - Phi(s_k)` with `Phi = 0` after the last turn, even if a limit ended the trajectory.

    `potentials[k]` is the potential before turn k. The discounted sum of F is `-Phi(s_0)`, which no action can change;
    no turns give an empty list.

    Raises:
        ValueError: a potential is not finite, or gamma lies outside [0, 1].
    """
    check_range("gamma", gamma, 0, 1)
    check_finite(potentials, "potential")
    after = [*potentials[1:], 0.0][: len(potentials)]
    return [gamma * later - before for before, later in zip(potentials, after, strict=True)]


def build_potential(
    *, gamma: float = 1.0, coefficient: float = 1.0, deviation: Deviation = "none", epsilon: float = 1e-6
) -> CreditFunction:
    """Turn rewards plus `compute_shaping`, then `compute_multi_turn_advantages`.

    The same gamma discounts outcome and turn rewards. `coefficient` weights turn rewards and shaping together. The
    default deviation is "none": dividing each turn index by its own deviation would rescale the shaping terms against
    each other, and they would no longer cancel along a trajectory. The comparison within the turn index is ours; it
    subtracts what members have in common and so changes no best policy.
    """
    check_comparison(deviation=deviation, epsilon=epsilon, gamma=gamma)

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        shaped = []
        for member in members:
            potentials = require_turn_values((turn.potential for turn in member.turns), "potential")
            shaping = compute_shaping(potentials, gamma=gamma)
            shaped.append([turn.reward + extra for turn, extra in zip(member.turns, shaping, strict=True)])
        return compute_multi_turn_advantages(
            outcomes,
            shaped,
            coefficient=coefficient,
            gamma=gamma,
            outcome_gamma=gamma,
            deviation=deviation,
            epsilon=epsilon,
        )

    return build_group_credit(compute)


POTENTIAL = CreditMethod(
    name="potential",
    aliases=("potential-based reward shaping",),
    summary="turn rewards shaped by a potential, which adds -Phi(s_0) in total whatever is done",
    formula="A_ik = gamma^(T-1-k) norm(R)_i + coefficient * sum_{j>=k} gamma^(j-k) norm(r + gamma Phi' - Phi)_ij",
    paper="Ng, Harada and Russell 1999",
    defaults={"gamma": 1.0, "coefficient": 1.0, "deviation": "none", "epsilon": 1e-6},
    group_of_one="0",
    constant_group="0 where potentials and turn rewards agree at every turn index",
    needs=("potential",),
    build=build_potential,
)
