"""A trust region in probabilities instead of ratios (DPPO, binary total variation and binary KL: arXiv 2602.04879)."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.ratios import compute_ratio

FLOOR = 1e-8
"""Smallest 1 - probability in the binary KL, so that a token of probability 1 has a finite divergence."""


def compute_dppo_tv_loss(inputs: LossInputs, *, delta_low: float, delta_high: float, max_ratio: float) -> LossOutput:
    """`-A sg(min(ratio, max_ratio)) log policy` inside the trust region, 0 outside.

    Probabilities are compared with those of the *behavior* policy mu. Outside: A > 0 with `policy - mu > delta_high`,
    or A <= 0 with `policy - mu < -delta_low` (probabilities, not logs), so rare tokens may grow by large ratios and
    frequent ones may not move far. `clipped` marks the tokens outside. Raises ValueError unless the deltas are at least
    0 and `max_ratio` is positive.

    Deviation: verl compares with its old log-probabilities; ours are the sampler's (equal where nothing was
    recomputed).
    """
    policy, behavior = inputs.policy_logprobs.detach().exp(), inputs.behavior_logprobs.exp()
    moved = policy - behavior
    outside = torch.where(inputs.advantages > 0, moved > delta_high, moved < -delta_low)
    return _masked_policy_gradient(inputs, outside, delta_low, delta_high, max_ratio)


def compute_dppo_kl_loss(inputs: LossInputs, *, delta_low: float, delta_high: float, max_ratio: float) -> LossOutput:
    """As `compute_dppo_tv_loss`, with the region in binary KL.

    `mu log(mu / policy) + (1 - mu) log((1 - mu) / (1 - policy))`. Outside: the divergence exceeds the delta *and* the
    token moved the way its advantage pushes it. `1 - p` is at least 1e-8.
    """
    log_policy, log_behavior = inputs.policy_logprobs.detach(), inputs.behavior_logprobs
    policy, behavior = log_policy.exp(), log_behavior.exp()
    others = ((1 - behavior).clamp(min=FLOOR) / (1 - policy).clamp(min=FLOOR)).log()
    divergence = behavior * (log_behavior - log_policy) + (1 - behavior) * others
    outside = torch.where(
        inputs.advantages > 0,
        (divergence > delta_high) & (policy > behavior),
        (divergence > delta_low) & (policy < behavior),
    )
    return _masked_policy_gradient(inputs, outside, delta_low, delta_high, max_ratio)


def _masked_policy_gradient(
    inputs: LossInputs, outside: torch.Tensor, delta_low: float, delta_high: float, max_ratio: float
) -> LossOutput:
    """The capped, detached importance weight times REINFORCE, 0 (value and gradient) where `outside`."""
    if not (delta_low >= 0 and delta_high >= 0 and max_ratio > 0):
        raise ValueError(
            f"DPPO's deltas are {delta_low}, {delta_high} and max_ratio is {max_ratio}; deltas must be >= 0 and "
            "max_ratio > 0"
        )
    weights = compute_ratio(inputs.policy_logprobs.detach() - inputs.behavior_logprobs).clamp(max=max_ratio)
    losses = -weights.masked_fill(outside, 0.0) * inputs.advantages * inputs.policy_logprobs
    return LossOutput(losses=losses, clipped=outside)


DPPO_TV = LossMethod(
    name="dppo_tv",
    aliases=("DPPO", "DPPO-Binary-TV"),
    summary="Trust region on the change in probability, against the behavior policy.",
    formula=(
        "-A sg(min(policy/mu, max_ratio)) log policy, 0 where policy - mu left [-delta_low, delta_high] with A's sign"
    ),
    paper="arXiv 2602.04879",
    defaults={"delta_low": 0.15, "delta_high": 0.15, "max_ratio": 20.0},
    level="token",
    default_aggregation="token_mean",
    anchor="behavior",
    stale="ratio",
    function=compute_dppo_tv_loss,
)

DPPO_KL = LossMethod(
    name="dppo_kl",
    aliases=("DPPO-Binary-KL",),
    summary="Trust region on the binary KL, against the behavior policy.",
    formula=(
        "-A sg(min(policy/mu, max_ratio)) log policy, 0 where KL(mu, policy) > delta and the token moved with A's sign"
    ),
    paper="arXiv 2602.04879",
    defaults={"delta_low": 0.05, "delta_high": 0.05, "max_ratio": 20.0},
    level="token",
    default_aggregation="token_mean",
    anchor="behavior",
    stale="ratio",
    function=compute_dppo_kl_loss,
)
