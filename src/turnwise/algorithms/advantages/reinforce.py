"""REINFORCE (Williams 1992) and REINFORCE++ (Hu et al. 2025, arXiv 2501.03262), with and without a group baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np

from turnwise.algorithms.advantages.groups import select_scored
from turnwise.algorithms.advantages.grpo import build_dr_grpo
from turnwise.algorithms.advantages.whitening import Whitening, whiten_tokens
from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    FloatArray,
    TokenAdvantages,
    broadcast_outcome,
    compute_token_rewards,
    compute_total_reward,
    split_turns,
)
from turnwise.algorithms.options import check_choice, check_range


def compute_discounted_returns(rewards: FloatArray, *, gamma: float) -> FloatArray:
    """`G_t = r_t + gamma * G_{t+1}`, `[L]`, over the sampled tokens of one trajectory, all turns joined.

    Observations between turns are not discounted; the sum never restarts at a turn. No baseline, no deviation.
    """
    returns = np.empty_like(rewards)
    running = 0.0
    for index, reward in enumerate(reversed(rewards.tolist()), start=1):
        running = reward + gamma * running
        returns[-index] = running
    return returns


def compute_reinforce_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """`A_i = r_i`: no baseline, so groups of one and constant groups get their reward. None stays None.

    Raises ValueError when a reward is not finite.
    """
    select_scored(rewards)
    return list(rewards)


def build_reinforce() -> CreditFunction:
    """Assign the total reward to every sampled token."""
    return lambda trajectories: broadcast_outcome(
        trajectories, compute_reinforce_advantages([compute_total_reward(trajectory) for trajectory in trajectories])
    )


def build_reinforce_plus_plus(
    *, gamma: float = 1.0, kl_coefficient: float = 0.0, whitening: Whitening = "full", epsilon: float = 1e-8
) -> CreditFunction:
    """REINFORCE++: discounted returns of the token rewards, whitened over all sampled tokens of the batch.

    `G_t = sum_{k>=t} gamma^(k-t) (r_k - kl_coefficient * (logprob_k - reference_logprob_k))`, then `compute_whitened`.
    Groups are not used: a group of one is like any other trajectory, and a constant group gets 0 only if the whole
    batch is constant.
    """
    check_choice("whitening", whitening, get_args(Whitening))
    check_range("gamma", gamma, 0, 1)
    check_range("kl_coefficient", kl_coefficient, 0)
    check_range("epsilon", epsilon, 0)

    def compute(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        returns = [
            None
            if t.reward is None
            else split_turns(
                t, compute_discounted_returns(compute_token_rewards(t, kl_coefficient=kl_coefficient), gamma=gamma)
            )
            for t in trajectories
        ]
        return whiten_tokens(returns, whitening=whitening, epsilon=epsilon)

    return compute


def build_reinforce_plus_plus_baseline(*, whitening: Whitening = "full", epsilon: float = 1e-8) -> CreditFunction:
    """REINFORCE++ with a group baseline: `r_i - group mean`, whitened over all sampled tokens of the batch.

    Groups of one and constant groups are exactly 0 before whitening ("full" then shifts them by the batch mean, which
    is 0 when all trajectories are equally long; "scale", as in rLLM, keeps them 0). In verl a group of one gets its raw
    reward instead.
    """
    check_choice("whitening", whitening, get_args(Whitening))
    check_range("epsilon", epsilon, 0)
    center = build_dr_grpo()
    return lambda trajectories: whiten_tokens(center(trajectories), whitening=whitening, epsilon=epsilon)


REINFORCE = CreditMethod(
    name="reinforce",
    summary="the outcome itself, no baseline",
    formula="A = r",
    paper="Williams 1992",
    group_of_one="r",
    constant_group="r",
    compares="nothing",
    build=build_reinforce,
)

REINFORCE_PLUS_PLUS = CreditMethod(
    name="reinforce_plus_plus",
    summary="discounted return per token, whitened over the batch",
    formula="A_t = whiten(sum_{k>=t} gamma^(k-t) (r_k - kl_coefficient * KL_k))",
    paper="2501.03262",
    defaults={"gamma": 1.0, "kl_coefficient": 0.0, "whitening": "full", "epsilon": 1e-8},
    group_of_one="as any trajectory",
    constant_group="as any trajectories; 0 if the whole batch is constant",
    compares="nothing",
    build=build_reinforce_plus_plus,
)

REINFORCE_PLUS_PLUS_BASELINE = CreditMethod(
    name="reinforce_plus_plus_baseline",
    summary="outcome against the group's mean, whitened over the batch",
    formula="A = whiten(r - mean)",
    paper="2501.03262",
    defaults={"whitening": "full", "epsilon": 1e-8},
    group_of_one="0 before whitening",
    constant_group="0 before whitening",
    build=build_reinforce_plus_plus_baseline,
)
