"""The clipped policy loss (PPO: Schulman et al. 2017, arXiv 1707.06347, equation 7), one value per token."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput, check_clip
from turnwise.algorithms.ratios import compute_ratio


def compute_ppo_clip_loss(
    policy_logprobs: torch.Tensor,
    behavior_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`max(-ratio A, -clip(ratio, 1 - clip_low, 1 + clip_high) A)` per token, `ratio = exp(policy - behavior)`.

    Args:
        policy_logprobs: `[K]`, with gradient.
        behavior_logprobs: `[K]`, of the distribution the tokens were drawn from.
        advantages: `[K]`.
        clip_low: lower clip distance, in [0, 1].
        clip_high: upper clip distance; larger than `clip_low` is DAPO's clip-higher.

    Returns:
        `losses [K]` to be minimised, and `clipped [K]` (bool): where the clip cut the gradient, that is A > 0 with
        ratio > 1 + clip_high, or A < 0 with ratio < 1 - clip_low.

    Deviation from the paper: the log-ratio is clamped to +-20 before exp, and outside it the gradient is 0.
    """
    return clip_surrogate(compute_ratio(policy_logprobs - behavior_logprobs), advantages, clip_low, clip_high)


def compute_ppo_loss(inputs: LossInputs, *, clip_low: float, clip_high: float) -> LossOutput:
    """`compute_ppo_clip_loss` of packed tokens with the ratio policy / old. PPO, GRPO, Dr.GRPO and DAPO share it.

    They differ in the advantage, the KL term and the aggregation. Raises ValueError when a clip distance is out of
    range."""
    check_clip(clip_low, clip_high)
    ratio = compute_ratio(inputs.policy_logprobs - inputs.old_logprobs)
    losses, clipped = clip_surrogate(ratio, inputs.advantages, clip_low, clip_high)
    return LossOutput(losses=losses, clipped=clipped)


def clip_surrogate(
    ratio: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's pessimistic surrogate `losses [K]` of any ratio `[K]`, and where it cut the gradient, `clipped [K]`
    (bool)."""
    losses = torch.maximum(-ratio * advantages, -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    clipped = ((advantages > 0) & (ratio > 1 + clip_high)) | ((advantages < 0) & (ratio < 1 - clip_low))
    return losses, clipped
