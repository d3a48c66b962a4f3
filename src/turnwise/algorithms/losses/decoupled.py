"""Decoupled PPO (arXiv 2110.00641, 2505.24298): the behavior policy sampled, the proximal policy anchors the clip, the
current policy trains."""

from __future__ import annotations

from typing import Literal

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
        inputs: `old_logprobs` is the proximal policy. If it equals the behavior policy this is PPO exactly.
        clip_low: lower clip distance of `u`.
        clip_high: upper clip distance of `u`.
        max_weight: largest `w`; inf is the paper's objective.
        weight_mode: above `max_weight`, "mask" drops the token, "truncate" uses `max_weight`.

    `clipped` marks PPO's cut of `u` and the dropped tokens. Unclipped, `w u = policy / behavior`: the proximal policy
    has no influence on the gradient.
    """
    ppo = compute_ppo_loss(inputs, clip_low=clip_low, clip_high=clip_high)
    correction = compute_correction(
        inputs.old_logprobs, inputs.behavior_logprobs, inputs.sequence, mode=weight_mode, level="token", high=max_weight
    )
    return LossOutput(losses=correction.weights * ppo.losses, clipped=ppo.clipped | ~correction.keep)


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
