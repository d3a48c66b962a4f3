"""A soft gate instead of a clip (SAPO: arXiv 2511.20347)."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.ratios import compute_ratio


def compute_sapo_loss(inputs: LossInputs, *, temperature_positive: float, temperature_negative: float) -> LossOutput:
    """`-A (4 / tau) sigmoid(tau (ratio - 1))` with `ratio = policy / old` and tau chosen by the sign of A.

    A <= 0 uses the negative one. The gate has slope 1 at ratio 1 for any tau, so on policy the gradient is REINFORCE's;
    far from 1 it fades smoothly to 0. The value on policy is `-2 A / tau`, not `-A`. `clipped` is never True: nothing
    is cut. Raises ValueError unless both temperatures are positive.
    """
    if not (temperature_positive > 0 and temperature_negative > 0):
        raise ValueError(
            f"SAPO's temperatures are {temperature_positive} and {temperature_negative}; both must be positive"
        )
    advantages = inputs.advantages
    ratio = compute_ratio(inputs.policy_logprobs - inputs.old_logprobs)
    tau = torch.full_like(advantages, temperature_negative).masked_fill(advantages > 0, temperature_positive)
    losses = -advantages * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    return LossOutput(losses=losses, clipped=torch.zeros_like(advantages, dtype=torch.bool))


SAPO = LossMethod(
    name="sapo",
    summary="A sigmoid gate instead of a clip.",
    formula="-A (4 / tau) sigmoid(tau (u - 1)), tau by the sign of A",
    paper="arXiv 2511.20347",
    defaults={"temperature_positive": 1.0, "temperature_negative": 1.05},
    level="token",
    default_aggregation="sequence_mean",
    anchor="old",
    stale="decoupled",
    function=compute_sapo_loss,
)
