"""Clipped importance weights instead of clipped updates (CISPO: MiniMax-M1, arXiv 2506.13585)."""

from __future__ import annotations

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput, check_clip
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.ratios import compute_ratio


def compute_cispo_loss(inputs: LossInputs, *, clip_low: float, clip_high: float) -> LossOutput:
    """`-sg(clip(ratio, 1 - clip_low, 1 + clip_high)) A log policy` with `ratio = policy / old`.

    arXiv 2506.13585, equations 4 and 5. The weight is detached: no token's gradient is ever 0 (unless A is), it is only
    capped. `clipped` marks where the cap changed the weight. `clip_low = 1` disables the lower bound, as in the paper.
    `clip_high` is a distance: 4 means a weight of at most 5 (TRL's option is that absolute cap, verl's this distance).
    The value is not that of PPO; only the gradient is meaningful.
    """
    check_clip(clip_low, clip_high)
    ratio = compute_ratio(inputs.policy_logprobs.detach() - inputs.old_logprobs)
    weights = ratio.clamp(1 - clip_low, 1 + clip_high)
    return LossOutput(losses=-weights * inputs.advantages * inputs.policy_logprobs, clipped=weights != ratio)


CISPO = LossMethod(
    name="cispo",
    summary="Clips the weight, never the token: every token keeps a gradient.",
    formula="-sg(clip(u, 1-clip_low, 1+clip_high)) A log policy",
    paper="arXiv 2506.13585",
    defaults={"clip_low": 1.0, "clip_high": 4.0},
    level="token",
    default_aggregation="token_mean",
    anchor="old",
    stale="ratio",
    function=compute_cispo_loss,
)
