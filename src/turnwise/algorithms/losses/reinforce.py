"""The plain policy gradient, without a ratio (REINFORCE: Williams 1992; GPG: arXiv 2504.02546)."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod


def compute_reinforce_loss(inputs: LossInputs) -> LossOutput:
    """`-A log policy`.

    Nothing is clipped and no old policy is read: correct only for tokens that the policy itself has just sampled. GPG
    is this loss with a token mean and its own advantage (no deviation; scaled by the share of groups with signal).
    """
    return LossOutput(
        losses=-inputs.advantages * inputs.policy_logprobs,
        clipped=torch.zeros_like(inputs.policy_logprobs, dtype=torch.bool),
    )


GPG = LossMethod(
    name="gpg",
    summary="Policy gradient without ratio or clip, mean over all tokens.",
    formula="-A log policy",
    paper="arXiv 2504.02546",
    defaults={},
    level="token",
    default_aggregation="token_mean",
    anchor="none",
    stale="decoupled",
    function=compute_reinforce_loss,
)

REINFORCE = LossMethod(
    name="reinforce",
    aliases=("policy gradient",),
    summary="Policy gradient of whole sequences: token log-probabilities are summed.",
    formula="-A log policy",
    paper="Williams 1992",
    defaults={},
    level="token",
    default_aggregation="sequence_sum",
    anchor="none",
    stale="decoupled",
    function=compute_reinforce_loss,
)
