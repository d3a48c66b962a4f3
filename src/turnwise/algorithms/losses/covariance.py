"""Losses that preserve entropy where log-probability and advantage covary most (clip-cov and KL-cov: arXiv 2505.22617).

The covariance of a token is `(A - mean A)(log policy - mean log policy)`. Both means and the ranking are over a set of
tokens: `select_*` over the whole step's batch (passed in `LossInputs.selected`) makes the loss independent of the split
into micro-batches; without it, the set is the micro-batch, as in the paper's own code.
"""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.losses.ppo_clip import PPO_FORMULA, compute_ppo_loss
from turnwise.algorithms.ratios import compute_ratio


def compute_covariance(logprobs: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """`(A - mean A)(logprobs - mean logprobs)`, `[K]`, detached; its mean is the (population) covariance.

    Constant A gives ~0.
    """
    logprobs = logprobs.detach()
    return (advantages - advantages.mean()) * (logprobs - logprobs.mean())


def select_top_covariance(logprobs: torch.Tensor, advantages: torch.Tensor, *, share: float) -> torch.Tensor:
    """KL-cov's tokens, `[K]` bool: the `max(1, floor(share K))` largest covariances.

    Raises ValueError unless 0 < share <= 1.
    """
    count = _count(share, len(logprobs))
    selected = torch.zeros_like(logprobs, dtype=torch.bool)
    selected[compute_covariance(logprobs, advantages).topk(count).indices] = True
    return selected


def select_random_covariance(
    logprobs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    share: float,
    low: float,
    high: float,
    seed: int,
    eligible: torch.Tensor | None = None,
) -> torch.Tensor:
    """Clip-cov's tokens, `[K]` bool: at most `max(1, floor(share K))` with covariance in (low, high).

    They are drawn without replacement. `eligible [K]` (bool) restricts the draw; None: all tokens. `seed` determines
    the draw. No token is selected if no covariance lies inside.
    """
    count = _count(share, len(logprobs))
    covariance = compute_covariance(logprobs, advantages)
    inside = (covariance > low) & (covariance < high)
    candidates = (inside if eligible is None else inside & eligible).nonzero().reshape(-1)
    order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(seed)).to(candidates.device)
    selected = torch.zeros_like(logprobs, dtype=torch.bool)
    selected[candidates[order[:count]]] = True
    return selected


def compute_clip_cov_loss(
    inputs: LossInputs, *, clip_low: float, clip_high: float, share: float, low: float, high: float, seed: int
) -> LossOutput:
    """PPO's loss, exactly 0 (value and gradient) on a few random tokens of high covariance (arXiv 2505.22617).

    The draw skips tokens that PPO's own clip already cut. `clipped` marks both. Deviation: the draw is a function of
    `seed`.
    """
    ppo = compute_ppo_loss(inputs, clip_low=clip_low, clip_high=clip_high)
    selected = inputs.selected
    if selected is None:
        selected = select_random_covariance(
            inputs.policy_logprobs, inputs.advantages, share=share, low=low, high=high, seed=seed, eligible=~ppo.clipped
        )
    return LossOutput(losses=ppo.losses.masked_fill(selected, 0.0), clipped=ppo.clipped | selected)


def compute_kl_cov_loss(inputs: LossInputs, *, share: float, coefficient: float) -> LossOutput:
    """`-ratio A`, plus `coefficient |log ratio|` on the tokens of largest covariance (arXiv 2505.22617).

    `ratio = policy / old`, unclipped; `clipped` marks the penalised tokens. On policy the penalty and its gradient are
    exactly 0. The penalty does not scale with A: normalise the loss by aggregation weights, never by folding a
    denominator into A.
    """
    if not coefficient >= 0:
        raise ValueError(f"coefficient is {coefficient}; the coefficient of KL-cov's penalty must be at least 0")
    log_ratio = inputs.policy_logprobs - inputs.old_logprobs
    selected = inputs.selected
    if selected is None:
        selected = select_top_covariance(inputs.policy_logprobs, inputs.advantages, share=share)
    penalty = (coefficient * log_ratio.abs()).masked_fill(~selected, 0.0)
    return LossOutput(losses=-compute_ratio(log_ratio) * inputs.advantages + penalty, clipped=selected)


def _count(share: float, num_tokens: int) -> int:
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; the share of tokens to select must lie in (0, 1]")
    return min(max(1, int(share * num_tokens)), num_tokens)


CLIP_COV = LossMethod(
    name="clip_cov",
    summary="PPO without gradient on a few random tokens of high covariance: holds entropy up.",
    formula=f"{PPO_FORMULA}, 0 on a random `share` of tokens with covariance in (low, high)",
    paper="arXiv 2505.22617",
    defaults={"clip_low": 1.0, "clip_high": 1.0, "share": 2e-4, "low": 1.0, "high": 5.0, "seed": 0},
    level="token",
    default_aggregation="token_mean",
    anchor="old",
    stale="decoupled",
    function=compute_clip_cov_loss,
    batch_rule=True,
)

KL_COV = LossMethod(
    name="kl_cov",
    summary="Penalises moving the tokens of highest covariance: holds entropy up.",
    formula="-u A + coefficient |log u| on the top `share` of tokens by covariance",
    paper="arXiv 2505.22617",
    defaults={"share": 0.002, "coefficient": 1.0},
    level="token",
    default_aggregation="token_mean",
    anchor="old",
    stale="decoupled",
    function=compute_kl_cov_loss,
    batch_rule=True,
)
