"""Monte-Carlo state values at every turn (VinePPO, arXiv 2410.01679). `rollout/branching.py` samples them."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.algorithms.credit import CreditFunction, CreditMethod, CreditTrajectory
from turnwise.algorithms.turns.groups import TurnAdvantages, add_outcome, build_group_credit, check_finite, turn_rewards


def compute_vine_advantages(rewards: Sequence[float], state_values: Sequence[float | None]) -> list[float]:
    """`A_k = r_k + V(s_{k+1}) - V(s_k)`, with value 0 after the last turn (gamma 1, no normalisation).

    Args:
        rewards: `[T]` turn rewards, the outcome included at the last turn.
        state_values: `[T]` mean reward of fresh rollouts from the state before turn k; None if there were none: such a
            state gets the value `r_k + V(s_{k+1})`, so its turn gets exactly 0.

    Returns:
        `[T]`; the advantages sum to `sum r - V(s_0)`. No group is involved: a group of one is like any other, and a
        constant group gets 0 only if no turn changed the value.

    Raises:
        ValueError: a number is not finite, or the lists differ in length.
    """
    if len(rewards) != len(state_values):
        raise ValueError(f"{len(rewards)} turn rewards but {len(state_values)} state values; pass one of each per turn")
    check_finite(rewards, "turn reward")
    check_finite((value for value in state_values if value is not None), "state value")
    advantages: list[float] = []
    following = 0.0
    for reward, value in zip(reversed(rewards), reversed(state_values), strict=True):
        reached = reward + following
        following = reached if value is None else value
        advantages.append(reached - following)
    return advantages[::-1]


def build_vine() -> CreditFunction:
    """`compute_vine_advantages` on each trajectory.

    It reads `CreditTurn.state_value` and turn rewards; the outcome counts at the last turn.
    """

    def compute(members: list[CreditTrajectory], outcomes: list[float]) -> TurnAdvantages:
        return [
            compute_vine_advantages(
                add_outcome(turn_rewards(member), outcome), [turn.state_value for turn in member.turns]
            )
            for member, outcome in zip(members, outcomes, strict=True)
        ]

    return build_group_credit(compute)


VINE = CreditMethod(
    name="vine",
    aliases=("VinePPO",),
    summary="change of the Monte-Carlo state value over each turn; needs an environment that can fork",
    formula="A_k = r_k + V(s_{k+1}) - V(s_k), V = 0 after the last turn",
    paper="2410.01679",
    group_of_one="like any other: no group is involved",
    constant_group="like any other: 0 only where a turn changes no value",
    needs=("state_value",),
    compares="nothing",
    branches="values",
    build=build_vine,
)
