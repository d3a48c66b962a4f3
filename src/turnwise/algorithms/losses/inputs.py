"""Input and output of every policy loss: packed trained tokens in, one value per token out.

A loss sees no batches, masks or denominators: `aggregate.compute_weights` weights its values, and `corrections`
corrects for a sampler that is not the trainer. A micro-batch must contain whole sequences; its composition changes
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from turnwise.algorithms.ratios import refuse_short_format


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossInputs:
    """K trained tokens, laid end to end. Prompt, observation and padding tokens never appear.

    Raises:
        ValueError: shapes differ, numbers are in float16 or bfloat16, `sequence` is not integer, or anything but
            `policy_logprobs` and `entropy` carries a gradient.
    """

    policy_logprobs: torch.Tensor
    """`[K]`, log-probabilities under the policy in training; carries the gradient."""
    old_logprobs: torch.Tensor
    """`[K]`, the denominator of the ratio: from the proximal policy, or again from the behavior policy if nothing was
    recomputed."""
    behavior_logprobs: torch.Tensor
    """`[K]`, under the distribution from which the tokens were drawn, as reported by the sampler."""
    advantages: torch.Tensor
    """`[K]`."""
    sequence: torch.Tensor
    """`[K]` integer, 0-based: the sample that each token belongs to."""
    entropy: torch.Tensor | None = None
    """`[K]` nats; None if it was not computed."""
    selected: torch.Tensor | None = None
    """`[K]` bool: tokens selected by a rule over the whole step's batch (clip-cov, KL-cov). None: the loss applies the
    rule to the tokens of its input, which depend on the split into micro-batches."""

    def __post_init__(self) -> None:
        shape = self.policy_logprobs.shape
        if len(shape) != 1:
            raise ValueError(
                f"policy_logprobs has shape {tuple(shape)}; a loss expects packed trained tokens, shape [K]"
            )
        for name in ("policy_logprobs", "old_logprobs", "behavior_logprobs", "advantages"):
            refuse_short_format(getattr(self, name), name)
        for name in ("old_logprobs", "behavior_logprobs", "advantages", "sequence", "entropy", "selected"):
            tensor: torch.Tensor | None = getattr(self, name)
            if tensor is None:
                continue
            if tensor.shape != shape:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}, policy_logprobs {tuple(shape)}; pack both in the same way"
                )
            if name != "entropy" and tensor.requires_grad:
                raise ValueError(f"{name} has a gradient; detach it: only policy_logprobs is differentiated")
        if self.sequence.is_floating_point() or self.sequence.dtype == torch.bool:
            raise ValueError(
                f"sequence has dtype {self.sequence.dtype}; it contains indices and must be an integer type"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossOutput:
    """A loss's value for every token, before aggregation weights."""

    losses: torch.Tensor
    """`[K]`, to be minimised."""
    clipped: torch.Tensor
    """`[K]` bool: where a clip, a cap or a trust region changed the token's gradient (the method's docstring gives
    details)."""
    metrics: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Additional metrics of a user's loss, `[K]` each or one number; a step records the mean over its tokens as
    `loss/NAME`."""


LossFunction = Callable[[LossInputs], LossOutput]


def check_clip(clip_low: float, clip_high: float, *, max_low: float = 1.0) -> None:
    """Raise ValueError unless `0 <= clip_low <= max_low` and `clip_high >= 0`."""
    if not 0 <= clip_low <= max_low:
        raise ValueError(f"clip_low is {clip_low}; it is a distance below ratio 1 and must lie in [0, {max_low}]")
    if not clip_high >= 0:
        raise ValueError(f"clip_high is {clip_high}; it is a distance above ratio 1 and must be at least 0")
