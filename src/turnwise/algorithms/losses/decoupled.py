"""Decoupled PPO (arXiv 2110.00641, 2505.24298): behavior sampled, proximal anchors the clip, current trains."""

from __future__ import annotations

from typing import Literal

import torch

from turnwise.algorithms.corrections import compute_correction
from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.losses.ppo_clip import PPO_FORMULA, compute_ppo_loss


def compute_decoupled_ppo_loss(
    inputs: LossInputs,
    *,
    clip_low: float,
    clip_high: float,
    max_weight: float,
    weight_mode: Literal["mask", "truncate"],
) -> LossOutput:
    """`w max(-u A, -clip(u) A)` with `u = policy / old` and the detached `w = old / behavior`.

    AReaL: arXiv 2505.24298, equation 5.

    Args:
        inputs: `old_logprobs` is the proximal policy. Where it equals the behavior policy this is PPO exactly.
        clip_low: lower clip distance of `u`.
        clip_high: upper clip distance of `u`.
        max_weight: largest `w`; inf is the paper's objective.
        weight_mode: above `max_weight`, "mask" drops the token, "truncate" uses `max_weight`.

    `clipped` is PPO's cut of `u` plus the dropped tokens. Unclipped, `w u = policy / behavior`: the proximal policy has
    no influence on the gradient.
    """
    ppo = compute_ppo_loss(inputs, clip_low=clip_low, clip_high=clip_high)
    correction = compute_correction(
        inputs.old_logprobs, inputs.behavior_logprobs, inputs.sequence, mode=weight_mode, level="token", high=max_weight
    )
    return LossOutput(losses=correction.weights * ppo.losses, clipped=ppo.clipped | ~correction.keep)


def compute_loglinear_proximal(
    policy_logprobs: torch.Tensor, behavior_logprobs: torch.Tensor, *, version: int, behavior_versions: torch.Tensor
) -> torch.Tensor:
    """Proximal log-probabilities `[K]` without a forward pass: `(1 - alpha) behavior + alpha sg(policy)` (A-3PO).

    `alpha = (version - 1 - v) / (version - v)` with `version` the policy's and `v [K]` the version that sampled the
    token: a token one version old has alpha 0 (the behavior policy), a very stale one approaches the current policy. A
    token that the current version itself sampled (`v = version`) has alpha 0. Raises ValueError when a token is newer
    than the policy.
    """
    age = version - behavior_versions
    if bool((age < 0).any()):
        raise ValueError(
            f"a token was sampled by version {int(behavior_versions.max())}, which is newer than the policy's {version}"
        )
    alpha = ((age - 1) / age.clamp(min=1)).clamp(min=0).to(policy_logprobs.dtype)
    return torch.lerp(behavior_logprobs, policy_logprobs.detach(), alpha)


DECOUPLED_PPO = LossMethod(
    name="decoupled_ppo",
    summary="Clips around a proximal policy, weighs by proximal / behavior: for stale samples.",
    formula=f"sg(old/mu) {PPO_FORMULA}, dropped (mask) or capped (truncate) above max_weight",
    paper="arXiv 2505.24298",
    defaults={"clip_low": 0.2, "clip_high": 0.2, "max_weight": 5.0, "weight_mode": "mask"},
    level="token",
    default_aggregation="token_mean",
    anchor="both",
    stale="proximal",
    function=compute_decoupled_ppo_loss,
)
