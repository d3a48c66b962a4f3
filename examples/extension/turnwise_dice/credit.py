"""A credit method: the reward minus the median of its group."""

from collections.abc import Sequence
from statistics import median

from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    build_outcome_credit,
    compute_total_reward,
)


def build(scale: float) -> CreditFunction:
    """The method with its options."""

    def compare(members: Sequence[CreditTrajectory]) -> list[float | None]:
        """One number per attempt at a task; None where the reward is missing."""
        rewards = [compute_total_reward(member) for member in members]
        middle = median([reward for reward in rewards if reward is not None] or [0.0])
        return [None if reward is None else scale * (reward - middle) for reward in rewards]

    return build_outcome_credit(compare)


ABOVE_MEDIAN = CreditMethod(
    name="above_median",
    summary="how far a reward is above the median of its group",
    formula="scale (R - median R)",
    paper="",
    defaults={"scale": 1.0},
    group_of_one="0",
    constant_group="0",
    build=build,
)
