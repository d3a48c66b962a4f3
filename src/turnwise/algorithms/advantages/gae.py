"""Generalized advantage estimation over sampled tokens (GAE: Schulman et al. 2015, arXiv 1506.02438, equation 16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from turnwise.algorithms.advantages.whitening import Whitening, whiten_tokens
from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    FloatArray,
    TokenAdvantages,
    compute_token_rewards,
    join_turns,
    split_turns,
)
from turnwise.algorithms.options import check_choice, check_range

Bootstrap = Literal["zero", "value"]


def compute_gae(
    rewards: FloatArray, values: FloatArray, *, gamma: float, gae_lambda: float, final_value: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """`A_t = d_t + gamma * lambda * A_{t+1}`, `d_t = r_t + gamma * V_{t+1} - V_t`; returns `R_t = A_t + V_t`.

    t + 1 is the next *sampled* token, in whatever turn. Observation tokens are not in the arrays, so they are not
    discounted and the recursion never bootstraps from their values: code that masks them and recurses over all
    positions agrees with this only when gamma = lambda = 1.

    Args:
        rewards, values: `[L]` each, one per step; `values[t]` is the value of the state before step t.
        gamma, gae_lambda: in [0, 1].
        final_value: value after the last step; 0 if the trajectory ended.

    Returns:
        Advantages and returns (the critic's targets), `[L]` each; empty for no steps. No deviation, no epsilon.

    Raises:
        ValueError: the shapes differ, or a number is not finite.
    """
    check_range("gamma", gamma, 0, 1)
    check_range("gae_lambda", gae_lambda, 0, 1)
    if rewards.shape != values.shape or rewards.ndim != 1:
        raise ValueError(
            f"rewards {list(rewards.shape)} and values {list(values.shape)} must be one number per step each"
        )
    if not (np.isfinite(rewards).all() and np.isfinite(values).all() and np.isfinite(final_value)):
        raise ValueError("rewards, values or final_value contain a non-finite number; check the critic's output")
    advantages = np.empty_like(values)
    next_value, running = final_value, 0.0
    steps = zip(reversed(rewards.tolist()), reversed(values.tolist()), strict=True)
    for index, (reward, value) in enumerate(steps, start=1):
        running = reward + gamma * next_value - value + gamma * gae_lambda * running
        advantages[-index] = running
        next_value = value
    return advantages, advantages + values


def select_final_value(trajectory: CreditTrajectory, bootstrap: Bootstrap) -> float:
    """Return the value after the last turn.

    0 for a trajectory that ended, and for a truncated one with "zero" (a limit counts as an end, worth nothing more).
    With "value", a truncated one has the critic's `final_value`; raises ValueError if that is None.
    """
    if bootstrap == "zero" or not trajectory.truncated:
        return 0.0
    if trajectory.final_value is None:
        raise ValueError(
            f"final_value is missing for a truncated trajectory of group {trajectory.group!r}; bootstrap='value' needs "
            "the critic's value after the last turn: compute it, or set bootstrap='zero'"
        )
    return trajectory.final_value


def compute_trajectory_gae(
    trajectory: CreditTrajectory,
    *,
    gamma: float = 1.0,
    gae_lambda: float = 1.0,
    bootstrap: Bootstrap = "zero",
    kl_coefficient: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Compute advantages and returns of one trajectory over all its sampled tokens joined, `[L]` each, not whitened.

    The returns are the critic's targets. Raises ValueError as `compute_gae`, `compute_token_rewards` and
    `select_final_value` do, and where `values` is missing.
    """
    return compute_gae(
        compute_token_rewards(trajectory, kl_coefficient=kl_coefficient),
        join_turns(trajectory, "values"),
        gamma=gamma,
        gae_lambda=gae_lambda,
        final_value=select_final_value(trajectory, bootstrap),
    )


def compute_gae_returns(
    trajectory: CreditTrajectory, *, gamma: float, gae_lambda: float, bootstrap: Bootstrap, kl_coefficient: float
) -> list[FloatArray]:
    """The critic's targets: the returns of `compute_trajectory_gae`, one array per turn, `[turn.num_tokens]`."""
    _, returns = compute_trajectory_gae(
        trajectory, gamma=gamma, gae_lambda=gae_lambda, bootstrap=bootstrap, kl_coefficient=kl_coefficient
    )
    return split_turns(trajectory, returns)


def build_gae(
    *,
    gamma: float = 1.0,
    gae_lambda: float = 1.0,
    bootstrap: Bootstrap = "zero",
    kl_coefficient: float = 0.0,
    whitening: Whitening = "full",
    epsilon: float = 1e-8,
) -> CreditFunction:
    """PPO's advantages: token GAE across turns, then `compute_whitened` over all sampled tokens of the batch.

    Needs `values`; with a KL coefficient also `logprobs` and `reference_logprobs`. Trajectories without a reward or a
    sampled token are left out of the whitening; groups are not used.
    """
    check_choice("bootstrap", bootstrap, get_args(Bootstrap))
    check_choice("whitening", whitening, get_args(Whitening))
    check_range("gamma", gamma, 0, 1)
    check_range("gae_lambda", gae_lambda, 0, 1)
    check_range("kl_coefficient", kl_coefficient, 0)
    check_range("epsilon", epsilon, 0)

    def compute(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        advantages: list[TokenAdvantages | None] = []
        for trajectory in trajectories:
            if trajectory.reward is None:
                advantages.append(None)
                continue
            joined, _ = compute_trajectory_gae(
                trajectory, gamma=gamma, gae_lambda=gae_lambda, bootstrap=bootstrap, kl_coefficient=kl_coefficient
            )
            advantages.append(split_turns(trajectory, joined))
        return whiten_tokens(advantages, whitening=whitening, epsilon=epsilon)

    return compute


GAE = CreditMethod(
    name="gae",
    aliases=("PPO",),
    summary="critic: return against value per token, across turns",
    formula="A_t = d_t + gamma lambda A_{t+1}; d_t = r_t + gamma V_{t+1} - V_t; whitened",
    paper="1506.02438",
    defaults={
        "gamma": 1.0,
        "gae_lambda": 1.0,
        "bootstrap": "zero",
        "kl_coefficient": 0.0,
        "whitening": "full",
        "epsilon": 1e-8,
    },
    group_of_one="as any trajectory",
    constant_group="as any trajectories",
    needs=("values",),
    compares="nothing",
    returns=compute_gae_returns,
    build=build_gae,
)
