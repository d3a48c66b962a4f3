"""Implicit process rewards with leave-one-out baselines (PRIME, arXiv 2502.01456).

`training/implicit_reward.py` trains the reward model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

import numpy as np

from turnwise.algorithms.advantages.reinforce import compute_discounted_returns
from turnwise.algorithms.advantages.whitening import Whitening, whiten_tokens
from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    FloatArray,
    TokenAdvantages,
    group_indices,
    join_turns,
    split_turns,
)
from turnwise.algorithms.options import check_choice, check_range
from turnwise.algorithms.turns.groups import check_finite


def compute_implicit_rewards(
    model_logprobs: FloatArray, reference_logprobs: FloatArray, *, beta: float = 0.05
) -> FloatArray:
    """`r_t = beta (log pi_phi - log pi_ref)` per sampled token, `[N]`.

    They sum to beta times the log-ratio of the whole reply.

    Raises ValueError when the lengths differ.
    """
    if model_logprobs.shape != reference_logprobs.shape:
        raise ValueError(
            f"the model has {model_logprobs.shape} log-probabilities, the reference {reference_logprobs.shape}; both "
            "must cover the same tokens"
        )
    return beta * (np.asarray(model_logprobs, dtype=np.float64) - np.asarray(reference_logprobs, dtype=np.float64))


def leave_one_out_means(values: Sequence[float]) -> list[float]:
    """Return, for each value, the mean of the others; a single value is its own baseline, so that its advantage is
    0."""
    total = math.fsum(values)
    return [(total - value) / (len(values) - 1) if len(values) > 1 else value for value in values]


def compute_prime_returns(
    outcomes: Sequence[float],
    implicit: Sequence[FloatArray],
    *,
    implicit_coefficient: float = 1.0,
    outcome_coefficient: float = 1.0,
    gamma: float = 1.0,
) -> list[FloatArray]:
    """Reward-to-go of `c_i (r_t - mean_{j != i} mean_t r_jt) + c_o [t last] (R_i - mean_{j != i} R_j)` for one group.

    Args:
        outcomes: n numbers.
        implicit: per member `[N_i]` rewards of all its sampled tokens, across turns; members without tokens do not
            contribute to the implicit baseline.
        gamma: discount per token.

    Returns:
        Per member `[N_i]`. A group of one gets exactly 0. Difference from the released code: there r_t is scaled by
        n/(n-1) before the sum over all members is subtracted, which is the same only if a member's r_t does not vary.

    Raises:
        ValueError: a number is not finite, or gamma lies outside [0, 1].
    """
    check_range("gamma", gamma, 0, 1)
    check_finite(outcomes, "outcome")
    for array in implicit:
        check_finite(array.tolist(), "implicit reward")
    outcome_baselines = leave_one_out_means(outcomes)
    sampled = [i for i, array in enumerate(implicit) if len(array)]
    baselines = dict(zip(sampled, leave_one_out_means([float(implicit[i].mean()) for i in sampled]), strict=True))
    returns = []
    for i, (outcome, array) in enumerate(zip(outcomes, implicit, strict=True)):
        compared = len(sampled) > 1 and i in baselines
        rewards = implicit_coefficient * (array - baselines[i]) if compared else np.zeros(len(array))
        if len(array):
            rewards[-1] += outcome_coefficient * (outcome - outcome_baselines[i])
        returns.append(compute_discounted_returns(rewards, gamma=gamma))
    return returns


def build_prime(
    *,
    implicit_coefficient: float = 1.0,
    outcome_coefficient: float = 1.0,
    gamma: float = 1.0,
    whitening: Whitening = "full",
    epsilon: float = 1e-8,
) -> CreditFunction:
    """`compute_prime_returns` on each group, then whitened over all sampled tokens of the batch.

    The rewards are `CreditTurn.implicit_rewards`. Turn rewards are not read. With whitening only the ratio of the two
    coefficients matters. Raises ValueError if a turn does not have one implicit reward per token (None is allowed if it
    sampled nothing).
    """
    check_range("gamma", gamma, 0, 1)
    check_range("epsilon", epsilon, 0)
    check_choice("whitening", whitening, get_args(Whitening))

    def credit(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        credited: list[TokenAdvantages | None] = [None] * len(trajectories)
        scored = [i for i, trajectory in enumerate(trajectories) if trajectory.reward is not None]
        for positions in group_indices([trajectories[i].group for i in scored]):
            members = [scored[position] for position in positions]
            returns = compute_prime_returns(
                [trajectories[i].reward or 0.0 for i in members],
                [join_turns(trajectories[i], "implicit_rewards") for i in members],
                implicit_coefficient=implicit_coefficient,
                outcome_coefficient=outcome_coefficient,
                gamma=gamma,
            )
            for i, tokens in zip(members, returns, strict=True):
                credited[i] = split_turns(trajectories[i], tokens)
        return whiten_tokens(credited, whitening=whitening, epsilon=epsilon)

    return credit


PRIME = CreditMethod(
    name="prime",
    summary=(
        "implicit per-token process rewards and the outcome, leave-one-out, as rewards-to-go, whitened over the batch"
    ),
    formula="A = whiten(sum_{l>=t} c_i (r_l - loo mean r) + c_o (R - loo mean R))",
    paper="2502.01456",
    defaults={
        "implicit_coefficient": 1.0,
        "outcome_coefficient": 1.0,
        "gamma": 1.0,
        "whitening": "full",
        "epsilon": 1e-8,
    },
    group_of_one="0 before whitening",
    constant_group="0 in the outcome part; the implicit part remains",
    needs=("implicit_rewards",),
    build=build_prime,
)
