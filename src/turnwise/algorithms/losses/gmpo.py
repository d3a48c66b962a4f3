"""The geometric mean of clipped token ratios (GMPO: arXiv 2507.20673)."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput, check_clip
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.ratios import compute_ratio, mean_over_sequence


def compute_gmpo_loss(inputs: LossInputs, *, clip_low: float, clip_high: float) -> LossOutput:
    """`-mean(A) exp(mean over the sequence of c)`, the same for every token of a sequence.

    `c = sgn(A) min(sgn(A) d, sgn(A) clip(d, -clip_low, clip_high))` with `d = log(policy / old)`: token-level clipping
    in log space, always pessimistic. `clipped` marks where `c` lost its gradient: A > 0 with d above clip_high, or A <
    0 with d below -clip_low. Without clipping this is GSPO without clipping. Meant for one advantage per sequence; if
    advantages differ inside a sequence, their mean is the factor and each token's own sign determines its clip (a token
    with A = 0 contributes c = 0).
    """
    check_clip(clip_low, clip_high, max_low=float("inf"))
    advantages, sign = inputs.advantages, inputs.advantages.sign()
    log_ratio = inputs.policy_logprobs - inputs.old_logprobs
    pessimistic = sign * torch.minimum(sign * log_ratio, sign * log_ratio.clamp(-clip_low, clip_high))
    ratio = compute_ratio(mean_over_sequence(pessimistic, inputs.sequence))
    clipped = ((advantages > 0) & (log_ratio > clip_high)) | ((advantages < 0) & (log_ratio < -clip_low))
    return LossOutput(losses=-mean_over_sequence(advantages, inputs.sequence) * ratio, clipped=clipped)


GMPO = LossMethod(
    name="gmpo",
    summary="Geometric mean of token ratios that are clipped in log space.",
    formula="-A exp(mean c), c = pessimistic clip of log u to [-clip_low, clip_high]",
    paper="arXiv 2507.20673",
    defaults={"clip_low": 0.4, "clip_high": 0.4},
    level="sequence",
    default_aggregation="sequence_mean",
    anchor="old",
    stale="sequence",
    function=compute_gmpo_loss,
)
