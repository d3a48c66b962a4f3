"""The greedy attempt as baseline (ReMax: Li et al. 2023, arXiv 2310.10505)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from turnwise.algorithms.advantages.reinforce import compute_discounted_returns
from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    FloatArray,
    TokenAdvantages,
    compute_token_rewards,
    split_turns,
)


def compute_remax_advantages(rewards: FloatArray, greedy_reward: float) -> FloatArray:
    """`A_t = G_t - r(greedy attempt)`, `[L]`, with `G_t` the undiscounted rewards from token t on.

    With only an outcome, every token gets `r - r(greedy)`. Groups are not used, so a group of one is well defined and a
    constant group gets 0 only if it equals its greedy attempt. Raises ValueError when `greedy_reward` is not finite.
    """
    if not math.isfinite(greedy_reward):
        raise ValueError(
            f"greedy_reward is {greedy_reward}; set the trajectory's reward to None where the greedy attempt failed"
        )
    return compute_discounted_returns(rewards, gamma=1.0) - greedy_reward


def build_remax() -> CreditFunction:
    """ReMax over token rewards; needs `greedy_reward`, the total reward of one greedy attempt at the same task.

    A trajectory whose own reward is None is left out.
    """

    def compute(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        result: list[TokenAdvantages | None] = []
        for trajectory in trajectories:
            if trajectory.reward is None:
                result.append(None)
                continue
            if trajectory.greedy_reward is None:
                raise ValueError(
                    f"greedy_reward is missing for a trajectory of group {trajectory.group!r}; remax needs one greedy "
                    "attempt per task"
                )
            result.append(
                split_turns(
                    trajectory, compute_remax_advantages(compute_token_rewards(trajectory), trajectory.greedy_reward)
                )
            )
        return result

    return compute


REMAX = CreditMethod(
    name="remax",
    summary="return against the greedy attempt's reward",
    formula="A_t = sum_{k>=t} r_k - r(greedy)",
    paper="2310.10505",
    group_of_one="r - r(greedy)",
    constant_group="r - r(greedy)",
    needs=("greedy_reward",),
    compares="nothing",
    annotators=("greedy_baseline",),
    build=build_remax,
)
