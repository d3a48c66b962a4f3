"""The clipped policy loss (PPO: Schulman et al. 2017, arXiv 1707.06347, equation 7), one value per token."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput, check_clip
from turnwise.algorithms.losses.method import LossMethod
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
        behavior_logprobs: `[K]`, under the distribution from which the tokens were drawn.
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
    """Apply `compute_ppo_clip_loss` to packed tokens with the ratio policy / old. PPO, GRPO, Dr.GRPO and DAPO share it.

    They differ in the advantage, the KL term and the aggregation. Raises ValueError when a clip distance is out of
    range.
    """
    check_clip(clip_low, clip_high)
    ratio = compute_ratio(inputs.policy_logprobs - inputs.old_logprobs)
    losses, clipped = clip_surrogate(ratio, inputs.advantages, clip_low, clip_high)
    return LossOutput(losses=losses, clipped=clipped)


def clip_surrogate(
    ratio: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's pessimistic surrogate for a ratio `[K]`: `losses [K]`, and `clipped [K]` bool, where it cut the
    gradient."""
    losses = torch.maximum(-ratio * advantages, -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    clipped = ((advantages > 0) & (ratio > 1 + clip_high)) | ((advantages < 0) & (ratio < 1 - clip_low))
    return losses, clipped


PPO_FORMULA = "max(-u A, -clip(u, 1-clip_low, 1+clip_high) A)"
"""PPO's surrogate, in the notation of `LossMethod.formula`."""

PPO = LossMethod(
    name="ppo",
    aliases=("PPO-clip",),
    summary="Pessimistic clipped surrogate.",
    formula=PPO_FORMULA,
    paper="arXiv 1707.06347",
    defaults={"clip_low": 0.2, "clip_high": 0.2},
    level="token",
    default_aggregation="token_mean",
    anchor="old",
    stale="decoupled",
    function=compute_ppo_loss,
)

CLIP_HIGHER = LossMethod(
    name="clip_higher",
    summary="PPO with more room above: rare good tokens may grow.",
    formula=PPO_FORMULA,
    paper="arXiv 2503.14476",
    defaults={"clip_low": 0.2, "clip_high": 0.28},
    level="token",
    default_aggregation="token_mean",
    anchor="old",
    stale="decoupled",
    function=compute_ppo_loss,
)

GRPO = LossMethod(
    name="grpo",
    summary="PPO's surrogate, mean over sequences of token means (add a k3 term for the paper's KL).",
    formula=PPO_FORMULA,
    paper="arXiv 2402.03300",
    defaults={"clip_low": 0.2, "clip_high": 0.2},
    level="token",
    default_aggregation="sequence_mean",
    anchor="old",
    stale="decoupled",
    function=compute_ppo_loss,
)

DR_GRPO = LossMethod(
    name="dr_grpo",
    summary="PPO's surrogate, token sums over a constant divisor: no length bias (advantages without deviation).",
    formula=PPO_FORMULA,
    paper="arXiv 2503.20783",
    defaults={"clip_low": 0.2, "clip_high": 0.2},
    level="token",
    default_aggregation="constant",
    anchor="old",
    stale="decoupled",
    function=compute_ppo_loss,
)

DAPO = LossMethod(
    name="dapo",
    summary="Clip-higher with a mean over all tokens and no KL.",
    formula=PPO_FORMULA,
    paper="arXiv 2503.14476",
    defaults={"clip_low": 0.2, "clip_high": 0.28},
    level="token",
    default_aggregation="token_mean",
    anchor="old",
    stale="decoupled",
    function=compute_ppo_loss,
)
