"""GAE with turns as steps: turn-PPO (arXiv 2512.17008) and RAGEN's bi-level form (arXiv 2504.20073).

A turn ends where its sampled tokens end, whatever its reward: a turn worth 0 is a step like any other. Turns without
sampled tokens are not steps; `compute_turn_rewards` decides where their reward goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np

from turnwise.algorithms.advantages.gae import Bootstrap, compute_gae, select_final_value
from turnwise.algorithms.advantages.whitening import Whitening, compute_whitened
from turnwise.algorithms.credit import (
    CreditFunction,
    CreditMethod,
    CreditTrajectory,
    FloatArray,
    TokenAdvantages,
    compute_turn_rewards,
    join_turns,
    split_turns,
)
from turnwise.algorithms.options import check_choice, check_range


def compute_turn_gae(
    trajectory: CreditTrajectory, *, gamma: float = 0.99, gae_lambda: float = 0.9, bootstrap: Bootstrap = "zero"
) -> tuple[FloatArray, FloatArray]:
    """Turn-PPO: `A_k = d_k + gamma * lambda * A_{k+1}`, `d_k = r_k + gamma * V_{k+1} - V_k`, one step per turn.

    `V_k` is the value before the first sampled token of turn k, the only one that is read for that turn.

    Returns:
        Advantage and return per turn with sampled tokens, `[K]` each, in order. Every token of turn k gets `A_k`; the
        critic is trained at the turn's first token only, towards the return.

    Deviation: the paper has no public code; that the value is read at the first sampled token, and that a discount
    counts turns with sampled tokens only, are our interpretations.
    """
    rewards, starts, _ = _turn_steps(trajectory)
    values = join_turns(trajectory, "values")[starts]
    return compute_gae(
        rewards, values, gamma=gamma, gae_lambda=gae_lambda, final_value=select_final_value(trajectory, bootstrap)
    )


def compute_bilevel_gae(
    trajectory: CreditTrajectory,
    *,
    turn_gamma: float = 0.95,
    token_gamma: float = 1.0,
    gae_lambda: float = 1.0,
    bootstrap: Bootstrap = "zero",
) -> tuple[FloatArray, FloatArray]:
    """Bi-level GAE: over turns first, then inside each turn.

    The upper level runs GAE (`turn_gamma`) over the turns' rewards and the values at their *last* tokens, giving `A_k`.
    The lower level runs GAE (`token_gamma`) inside each turn separately, with the single reward `A_k + V(last token of
    k)` on the last token and nothing after it, so that the last token's advantage is `A_k`.

    Returns:
        Advantages and returns, `[L]` each over all sampled tokens joined, not whitened.

    Deviation: RAGEN detects turn ends by nonzero rewards, and so misses turns worth 0; here they are explicit. With all
    gammas and lambda 1 this is token GAE; with one turn it is token GAE with `token_gamma`.
    """
    rewards, starts, ends = _turn_steps(trajectory)
    values = join_turns(trajectory, "values")
    _, turn_returns = compute_gae(
        rewards,
        values[ends],
        gamma=turn_gamma,
        gae_lambda=gae_lambda,
        final_value=select_final_value(trajectory, bootstrap),
    )
    advantages = np.zeros_like(values)
    for start, end, turn_return in zip(starts, ends, turn_returns, strict=True):
        token_rewards = np.zeros(end + 1 - start)
        token_rewards[-1] = turn_return
        advantages[start : end + 1], _ = compute_gae(
            token_rewards, values[start : end + 1], gamma=token_gamma, gae_lambda=gae_lambda
        )
    return advantages, advantages + values


def compute_turn_gae_returns(
    trajectory: CreditTrajectory, *, gamma: float, gae_lambda: float, bootstrap: Bootstrap
) -> list[FloatArray]:
    """The critic's targets, one array `[turn.num_tokens]` per turn.

    The return of `compute_turn_gae` at the first token of each turn, NaN at the others.
    """
    _, returns = compute_turn_gae(trajectory, gamma=gamma, gae_lambda=gae_lambda, bootstrap=bootstrap)
    remaining = iter(returns.tolist())
    lengths = [turn.num_tokens for turn in trajectory.turns]
    return [np.array([next(remaining), *[np.nan] * (length - 1)]) if length else np.zeros(0) for length in lengths]


def compute_bilevel_gae_returns(
    trajectory: CreditTrajectory, *, turn_gamma: float, token_gamma: float, gae_lambda: float, bootstrap: Bootstrap
) -> list[FloatArray]:
    """The critic's targets: the returns of `compute_bilevel_gae`, one array per turn, `[turn.num_tokens]`."""
    _, returns = compute_bilevel_gae(
        trajectory, turn_gamma=turn_gamma, token_gamma=token_gamma, gae_lambda=gae_lambda, bootstrap=bootstrap
    )
    return split_turns(trajectory, returns)


def build_turn_gae(
    *,
    gamma: float = 0.99,
    gae_lambda: float = 0.9,
    bootstrap: Bootstrap = "zero",
    whitening: Whitening = "full",
    epsilon: float = 1e-8,
) -> CreditFunction:
    """Turn-PPO's advantages, whitened over the batch's turns with sampled tokens, then assigned to their tokens.

    Whitening over turns is our interpretation; the paper does not say. Needs `values`.
    """
    check_range("gamma", gamma, 0, 1)

    def compute_rows(trajectory: CreditTrajectory) -> FloatArray:
        return compute_turn_gae(trajectory, gamma=gamma, gae_lambda=gae_lambda, bootstrap=bootstrap)[0]

    def to_tokens(trajectory: CreditTrajectory, row: FloatArray) -> TokenAdvantages:
        lengths = [turn.num_tokens for turn in trajectory.turns]
        return split_turns(trajectory, np.repeat(row, [length for length in lengths if length]))

    return _build_whitened(compute_rows, to_tokens, gae_lambda, bootstrap, whitening, epsilon)


def build_bilevel_gae(
    *,
    turn_gamma: float = 0.95,
    token_gamma: float = 1.0,
    gae_lambda: float = 1.0,
    bootstrap: Bootstrap = "zero",
    whitening: Whitening = "full",
    epsilon: float = 1e-8,
) -> CreditFunction:
    """Bi-level GAE's advantages, whitened over all sampled tokens of the batch. Needs `values`."""
    check_range("turn_gamma", turn_gamma, 0, 1)
    check_range("token_gamma", token_gamma, 0, 1)

    def compute_rows(trajectory: CreditTrajectory) -> FloatArray:
        return compute_bilevel_gae(
            trajectory, turn_gamma=turn_gamma, token_gamma=token_gamma, gae_lambda=gae_lambda, bootstrap=bootstrap
        )[0]

    return _build_whitened(compute_rows, split_turns, gae_lambda, bootstrap, whitening, epsilon)


def _build_whitened(
    compute_rows: Callable[[CreditTrajectory], FloatArray],
    to_tokens: Callable[[CreditTrajectory, FloatArray], TokenAdvantages],
    gae_lambda: float,
    bootstrap: Bootstrap,
    whitening: Whitening,
    epsilon: float,
) -> CreditFunction:
    check_range("gae_lambda", gae_lambda, 0, 1)
    check_choice("bootstrap", bootstrap, get_args(Bootstrap))
    check_choice("whitening", whitening, get_args(Whitening))
    check_range("epsilon", epsilon, 0)

    def compute(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        rows = [compute_rows(t) for t in trajectories if t.reward is not None]
        whitened = iter(compute_whitened(rows, whitening=whitening, epsilon=epsilon))
        return [None if t.reward is None else to_tokens(t, next(whitened)) for t in trajectories]

    return compute


def _turn_steps(trajectory: CreditTrajectory) -> tuple[FloatArray, list[int], list[int]]:
    """Return reward, first and last position (in the joined tokens) of every turn with sampled tokens."""
    rewards, starts, ends = [], [], []
    position = 0
    for turn, reward in zip(trajectory.turns, compute_turn_rewards(trajectory), strict=True):
        if turn.num_tokens:
            rewards.append(reward)
            starts.append(position)
            position += turn.num_tokens
            ends.append(position - 1)
    return np.array(rewards, dtype=np.float64), starts, ends


TURN_GAE = CreditMethod(
    name="turn_gae",
    aliases=("turn-PPO",),
    summary="critic: one GAE step per turn",
    formula="A_k = d_k + gamma lambda A_{k+1}; d_k = r_k + gamma V_{k+1} - V_k; whitened over turns",
    paper="2512.17008",
    defaults={"gamma": 0.99, "gae_lambda": 0.9, "bootstrap": "zero", "whitening": "full", "epsilon": 1e-8},
    group_of_one="as any trajectory",
    constant_group="as any trajectories",
    needs=("values",),
    compares="nothing",
    returns=compute_turn_gae_returns,
    build=build_turn_gae,
)

BILEVEL_GAE = CreditMethod(
    name="bilevel_gae",
    summary="critic: GAE over turns, then over the tokens inside each",
    formula="A_k over turn ends with turn_gamma; inside turn k: token GAE with last reward A_k + V_end; whitened",
    paper="2504.20073",
    defaults={
        "turn_gamma": 0.95,
        "token_gamma": 1.0,
        "gae_lambda": 1.0,
        "bootstrap": "zero",
        "whitening": "full",
        "epsilon": 1e-8,
    },
    group_of_one="as any trajectory",
    constant_group="as any trajectories",
    needs=("values",),
    compares="nothing",
    returns=compute_bilevel_gae_returns,
    build=build_bilevel_gae,
)
