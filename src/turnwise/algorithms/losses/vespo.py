"""A soft weight of the whole sequence's importance ratio (VESPO: arXiv 2602.10693)."""

from __future__ import annotations

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod
from turnwise.algorithms.ratios import MAX_LOG_RATIO, sum_over_sequence


def compute_vespo_loss(
    inputs: LossInputs, *, power_positive: float, decay_positive: float, power_negative: float, decay_negative: float
) -> LossOutput:
    """`-sg(phi(W)) A log policy` with `phi(W) = exp(decay (1 - W)) W^power`.

    `W` is the product of policy / behavior over the sequence. phi(1) = 1, its maximum is at `W = power / decay`; powers
    and decays are chosen by the sign of A (A >= 0 uses the positive ones). `log W` is clamped to +-20. `clipped` is
    never True: the weight is soft. Raises ValueError when a power or a decay is not positive.
    """
    options = (power_positive, decay_positive, power_negative, decay_negative)
    if not all(value > 0 for value in options):
        raise ValueError(f"VESPO's powers and decays are {options}; all must be positive")
    log_ratio = inputs.policy_logprobs.detach() - inputs.behavior_logprobs
    log_weight = sum_over_sequence(log_ratio, inputs.sequence).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    good = inputs.advantages >= 0
    power = torch.full_like(log_weight, power_negative).masked_fill(good, power_positive)
    decay = torch.full_like(log_weight, decay_negative).masked_fill(good, decay_positive)
    phi = (power * log_weight - decay * torch.expm1(log_weight)).exp()
    losses = -phi * inputs.advantages * inputs.policy_logprobs
    return LossOutput(losses=losses, clipped=torch.zeros_like(good))


VESPO = LossMethod(
    name="vespo",
    summary="Soft weight of the whole sequence's ratio to the behavior policy.",
    formula=(
        "-sg(W^power exp(decay (1 - W))) A log policy, W = product of policy/mu, powers and decays by the sign of A"
    ),
    paper="arXiv 2602.10693",
    defaults={"power_positive": 2.0, "decay_positive": 3.0, "power_negative": 3.0, "decay_negative": 2.0},
    level="sequence",
    default_aggregation="token_mean",
    anchor="behavior",
    stale="ratio",
    function=compute_vespo_loss,
)
