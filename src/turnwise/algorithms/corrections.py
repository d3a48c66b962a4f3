"""Weights and masks for tokens that the trained policy did not sample itself. Everything is detached: no gradient.

The sampler's log-probabilities (`behavior`) differ from the trainer's recomputed ones (`old`) through kernels,
precision and stale weights. A correction multiplies the losses (`weights`), leaves tokens out (`keep`), or both;
`aggregate.compute_weights` says whether tokens left out count in the denominator. If `old` *is* the behavior, every
weight is 1 and nothing is corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from turnwise.algorithms.ratios import compute_ratio, mean_over_sequence, sum_over_sequence

CorrectionMode = Literal["truncate", "mask", "reject"]
CorrectionLevel = Literal["token", "sequence", "geometric"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Correction:
    """What each token's loss is multiplied with."""

    weights: torch.Tensor
    """`[K]`, at least 0; exactly 0 where `keep` is False."""
    keep: torch.Tensor
    """`[K]` bool."""


def compute_correction(
    old_logprobs: torch.Tensor,
    behavior_logprobs: torch.Tensor,
    sequence: torch.Tensor,
    *,
    mode: CorrectionMode,
    level: CorrectionLevel,
    low: float = 0.0,
    high: float,
    veto: float | None = None,
) -> Correction:
    """Importance weights `w = old / behavior`, bounded.

    Args:
        old_logprobs: `[K]`, the trainer's, recomputed before the step.
        behavior_logprobs: `[K]`, the sampler's.
        sequence: `[K]` integer; sequences must be whole.
        mode: "truncate" clamps w to [low, high] and keeps everything (TIS: Yao et al. 2025, "Your Efficient RL
            Framework Secretly Brings You Off-Policy RL Training"; usual high 2). "mask" uses w inside [low, high] and
            drops the rest (MIS; per token it is IcePop: arXiv 2510.18855; usual 0.5 to 5). "reject" drops the rest and
            gives the kept tokens weight 1 (geometric rejection; 0.999 to 1.001).
        level: the definition of w: "token" the token's ratio; "sequence" the product over the sequence; "geometric" its
            L-th root. The product of a long sequence is rarely near 1: a mean log-ratio of 0.001 is 2.7 at 1000 tokens.
        low: smallest w.
        high: largest w; inf is the unbiased weight.
        veto: drop the whole sequence when any token's ratio is below this, at any level; None does not.

    Log-weights are clamped to +-20 before exp (bounds apply to the clamped weight; the veto to the ratio itself).

    Raises:
        ValueError: unknown mode or level, `low > high`, a negative bound, or a veto that is not positive.
    """
    if mode not in ("truncate", "mask", "reject") or level not in ("token", "sequence", "geometric"):
        raise ValueError(
            f"correction {mode!r} at level {level!r} is unknown; modes: truncate, mask, reject; levels: token, "
            "sequence, geometric"
        )
    if not 0 <= low <= high:
        raise ValueError(f"correction bounds are [{low}, {high}]; they must satisfy 0 <= low <= high")
    if veto is not None and not veto > 0:
        raise ValueError(f"veto is {veto}; it must be a positive ratio, or None")
    log_ratio = old_logprobs.detach() - behavior_logprobs.detach()
    reduced = log_ratio
    if level != "token":
        reduced = (sum_over_sequence if level == "sequence" else mean_over_sequence)(log_ratio, sequence)
    ratio = compute_ratio(reduced)
    keep = torch.ones_like(ratio, dtype=torch.bool) if mode == "truncate" else (ratio >= low) & (ratio <= high)
    if veto is not None:
        vetoed = (log_ratio < math.log(veto)).to(ratio.dtype)
        keep = keep & (sum_over_sequence(vetoed, sequence) == 0)
    weights = torch.ones_like(ratio) if mode == "reject" else ratio.clamp(low, high)
    return Correction(weights=weights.masked_fill(~keep, 0.0), keep=keep)


def compute_off_policy_sequence_mask(
    policy_logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    sequence: torch.Tensor,
    *,
    max_drift: float,
) -> Correction:
    """Drop tokens with A < 0 in sequences that drifted: mean of `old - policy` over the sequence above `max_drift`.

    Off-policy sequence masking of DeepSeek-V3.2 (arXiv 2512.02556, section 3.1). Good sequences are always kept. Pass
    the behavior log-probabilities as `old_logprobs` to count the engine's mismatch as drift too, as the paper does.
    """
    drift = mean_over_sequence(old_logprobs.detach() - policy_logprobs.detach(), sequence)
    keep = (advantages >= 0) | (drift <= max_drift)
    return Correction(weights=keep.to(drift.dtype), keep=keep)


def compute_second_moment_mask(
    old_logprobs: torch.Tensor, behavior_logprobs: torch.Tensor, *, max_second_moment: float
) -> Correction:
    """M2PO (arXiv 2510.01161): drop the largest squared log-ratios until the mean of the others is small enough.

    That is, at most `max_second_moment`. The rule considers all tokens passed to it: call it once with the whole step's
    batch. Among equal squares the later token is dropped first. Raises ValueError when `max_second_moment` is negative.
    """
    if not max_second_moment >= 0:
        raise ValueError(
            f"max_second_moment is {max_second_moment}; it bounds a mean square and must be at least 0 (usual: 0.04)"
        )
    squares = (old_logprobs.detach() - behavior_logprobs.detach()).square()
    order = squares.argsort(stable=True)
    means = squares[order].cumsum(0) / torch.arange(1, len(squares) + 1, device=squares.device)
    keep = torch.zeros_like(squares, dtype=torch.bool)
    keep[order[means <= max_second_moment]] = True
    return Correction(weights=keep.to(squares.dtype), keep=keep)
