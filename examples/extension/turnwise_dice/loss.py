"""A loss: PPO's objective with a clip that has no corner."""

import torch

from turnwise.algorithms.losses.inputs import LossInputs, LossOutput
from turnwise.algorithms.losses.method import LossMethod


def compute(inputs: LossInputs, *, width: float) -> LossOutput:
    """Per token; `drift` is the log of the ratio to the old policy."""
    drift = inputs.policy_logprobs - inputs.old_logprobs
    losses = -inputs.advantages * width * torch.tanh(drift / width)
    return LossOutput(losses=losses, clipped=drift.detach().abs() > width)


SOFT_CLIP = LossMethod(
    name="soft_clip",
    summary="a clip without a corner",
    formula="-A w tanh(log u / w)",
    paper="",
    defaults={"width": 0.2},
    level="token",
    default_aggregation="token_mean",
    anchor="old",
    stale="decoupled",
    function=compute,
)
