"""Off-policy sequence masking around any policy loss (DeepSeek-V3.2, arXiv 2512.02556, section 3.1)."""

from __future__ import annotations

from dataclasses import replace

from turnwise.algorithms.corrections import compute_off_policy_sequence_mask
from turnwise.algorithms.losses.inputs import LossFunction, LossInputs, LossOutput


def mask_drifted_sequences(function: LossFunction, *, max_drift: float) -> LossFunction:
    """Return the loss with exactly 0 for tokens that `compute_off_policy_sequence_mask` drops, with drift measured from
    the behavior policy.

    Tokens that were dropped stay in the denominators, as in the paper's equation. Sequences must be whole.
    """

    def compute(inputs: LossInputs) -> LossOutput:
        output = function(inputs)
        kept = compute_off_policy_sequence_mask(
            inputs.policy_logprobs, inputs.behavior_logprobs, inputs.advantages, inputs.sequence, max_drift=max_drift
        ).keep
        return replace(output, losses=output.losses.masked_fill(~kept, 0.0))

    return compute
