"""The plain policy gradient, without a ratio (REINFORCE: Williams 1992; GPG: arXiv 2504.02546)."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput


def compute_reinforce_loss(inputs: LossInputs) -> LossOutput:
    """`-A log policy`. Nothing is clipped and no old policy is read: right only for tokens the policy itself has just
    sampled.

    GPG is this with a token mean and its own advantage (no deviation; scaled by the share of groups with signal).
    """
    return LossOutput(
        losses=-inputs.advantages * inputs.policy_logprobs,
        clipped=torch.zeros_like(inputs.policy_logprobs, dtype=torch.bool),
    )
