"""One ratio per sequence (GSPO and GSPO-token: Zheng et al. 2025, arXiv 2507.18071)."""

from __future__ import annotations

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput, check_clip
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.losses.ppo_clip import clip_surrogate
from turnwise.algorithms.ratios import compute_ratio, mean_over_sequence


def compute_gspo_loss(inputs: LossInputs, *, clip_low: float, clip_high: float) -> LossOutput:
    """`max(-s A, -clip(s, 1 - clip_low, 1 + clip_high) A)`, `s = exp(mean over the sequence of log(policy / old))`.

    GSPO (Zheng et al. 2025, arXiv 2507.18071, equations 5 and 7): one geometric-mean ratio per sequence, the same for
    all its tokens, and its gradient reaches every token of the sequence. With `sequence_mean` aggregation and one
    advantage per sequence this is the paper's objective. The clip distances apply to a mean log-ratio and are therefore
    tiny (3e-4, 4e-4). Deviation: with advantages that differ inside a sequence, each token's own advantage multiplies
    `s`.
    """
    check_clip(clip_low, clip_high)
    s = compute_ratio(mean_over_sequence(inputs.policy_logprobs - inputs.old_logprobs, inputs.sequence))
    losses, clipped = clip_surrogate(s, inputs.advantages, clip_low, clip_high)
    return LossOutput(losses=losses, clipped=clipped)


def compute_gspo_token_loss(inputs: LossInputs, *, clip_low: float, clip_high: float) -> LossOutput:
    """GSPO-token (arXiv 2507.18071, equation 13): GSPO's value, the gradient of the token's log-probability.

    `s_t = sg(s) policy_t / sg(policy_t)`. Equals GSPO in value always, and in gradient when the advantage and the
    aggregation weight are constant over a sequence; intended for advantages that differ from turn to turn.
    """
    check_clip(clip_low, clip_high)
    gradient_only = (inputs.policy_logprobs - inputs.policy_logprobs.detach()).exp()  # 1, with the token's gradient
    s = compute_ratio(mean_over_sequence((inputs.policy_logprobs - inputs.old_logprobs).detach(), inputs.sequence))
    losses, clipped = clip_surrogate(s * gradient_only, inputs.advantages, clip_low, clip_high)
    return LossOutput(losses=losses, clipped=clipped)


GSPO = LossMethod(
    name="gspo",
    summary="One geometric-mean ratio per sequence, clipped per sequence.",
    formula="max(-s A, -clip(s, 1-clip_low, 1+clip_high) A)",
    paper="arXiv 2507.18071",
    defaults={"clip_low": 3e-4, "clip_high": 4e-4},
    level="sequence",
    default_aggregation="sequence_mean",
    anchor="old",
    stale="sequence",
    function=compute_gspo_loss,
)

GSPO_TOKEN = LossMethod(
    name="gspo_token",
    summary="GSPO's ratio with each token's own gradient: for advantages that differ inside a sequence.",
    formula="max(-s' A, -clip(s', 1-clip_low, 1+clip_high) A), s' = sg(s) policy / sg(policy)",
    paper="arXiv 2507.18071",
    defaults={"clip_low": 3e-4, "clip_high": 4e-4},
    level="sequence",
    default_aggregation="sequence_mean",
    anchor="old",
    stale="sequence",
    function=compute_gspo_token_loss,
)

LUSPO = LossMethod(
    name="luspo",
    summary="GSPO with token sums per sequence: undoes its length normalisation.",
    formula="max(-s A, -clip(s, 1-clip_low, 1+clip_high) A)",
    paper="arXiv 2602.05261",
    defaults={"clip_low": 3e-4, "clip_high": 4e-4},
    level="sequence",
    default_aggregation="sequence_sum",
    anchor="old",
    stale="sequence",
    function=compute_gspo_loss,
)
