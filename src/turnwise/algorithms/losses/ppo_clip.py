"""The clipped policy loss (PPO: Schulman et al. 2017, arXiv 1707.06347, equation 7), one value per token."""

from __future__ import annotations

import torch

MAX_LOG_RATIO = 20.0
"""exp(20) is 5e8: larger log-ratios are clamped so that the loss and its gradient stay finite."""


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

    Deviation from the paper: the log-ratio is clamped to +-20 before exp.
    """
    log_ratio = (policy_logprobs - behavior_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    cut = ratio.clamp(1 - clip_low, 1 + clip_high)
    losses = torch.maximum(-ratio * advantages, -cut * advantages)
    clipped = ((advantages > 0) & (ratio > 1 + clip_high)) | ((advantages < 0) & (ratio < 1 - clip_low))
    return losses, clipped
