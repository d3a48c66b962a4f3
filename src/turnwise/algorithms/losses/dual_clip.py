"""PPO with a second clip for bad advantages (dual clip: Ye et al. 2019, arXiv 1912.09729)."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput, check_clip
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.losses.ppo_clip import PPO_FORMULA, clip_surrogate
from turnwise.algorithms.ratios import compute_ratio


def compute_dual_clip_loss(inputs: LossInputs, *, clip_low: float, clip_high: float, dual_clip: float) -> LossOutput:
    """PPO's loss, at most `-dual_clip A` where A < 0 (Ye et al. 2019, arXiv 1912.09729).

    A rare token with a bad advantage and a ratio above `dual_clip` gets no gradient, where PPO's is unbounded.
    `clipped` marks PPO's and these. With a large `dual_clip` this is PPO. Raises ValueError unless `dual_clip > 1`.
    """
    check_clip(clip_low, clip_high)
    if not dual_clip > 1:
        raise ValueError(
            f"dual_clip is {dual_clip}; it bounds the ratio from above and must be larger than 1 (usual: 3)"
        )
    ratio = compute_ratio(inputs.policy_logprobs - inputs.old_logprobs)
    losses, clipped = clip_surrogate(ratio, inputs.advantages, clip_low, clip_high)
    over = (inputs.advantages < 0) & (ratio > dual_clip)
    return LossOutput(losses=torch.where(over, -dual_clip * inputs.advantages, losses), clipped=clipped | over)


DUAL_CLIP = LossMethod(
    name="dual_clip",
    aliases=("dual-clip PPO",),
    summary="PPO whose loss is bounded for bad tokens with huge ratios.",
    formula=f"A < 0: min({PPO_FORMULA}, -dual_clip A)",
    paper="arXiv 1912.09729",
    defaults={"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0},
    level="token",
    default_aggregation="token_mean",
    anchor="old",
    stale="decoupled",
    function=compute_dual_clip_loss,
)
