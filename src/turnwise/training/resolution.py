"""Checks that updates are large enough for the format of the weights: measures the share of weights that a step
changes, and ends a run whose steps change none.

A number with 24 bits does not change when less than 2^-24 of it is added. A learning rate far below that trains nothing
although loss, gradient and step time look as usual.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from turnwise.core.errors import TrainingError
from turnwise.models.rows import own_rows

NUM_TENSORS, NUM_ELEMENTS = 64, 1024
"""A sample consists of this many elements, evenly spaced, from each of this many tensors."""
LEAST_GRADIENT = 1e-8
"""AdamW's epsilon: it damps the steps of smaller gradients by design."""
LEAST_SHARE = 0.01
LEAST_SAMPLE = 100
"""Fewest weights with a gradient from which a share is meaningful."""
NUM_STEPS = 5


class ChangeSample:
    """Some weights with a gradient, as they are before a step; ranks sample their own rows."""

    @torch.no_grad()
    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """`parameters` hold the gradients with which they will be stepped; those without a gradient are skipped."""
        with_gradient = [p for p in parameters if p.grad is not None and own_rows(p).numel()]
        self._taken = []
        for parameter in with_gradient[:: -(-len(with_gradient) // NUM_TENSORS) or 1]:
            assert parameter.grad is not None
            is_driven = _pick(parameter.grad).abs() > LEAST_GRADIENT
            self._taken.append((parameter, _pick(parameter.detach()).clone(), is_driven))

    @torch.no_grad()
    def count(self) -> Changes:
        """Count, after the step, which of them changed."""
        counts = [
            torch.stack([((_pick(parameter.detach()) != before) & is_driven).sum(), is_driven.sum()])
            for parameter, before, is_driven in self._taken
        ]
        if not counts:
            return Changes(changed=0, driven=0)
        changed, driven = torch.stack(counts).sum(0).tolist()
        return Changes(changed=changed, driven=driven)


def _pick(tensor: torch.Tensor) -> torch.Tensor:
    flat = own_rows(tensor).reshape(-1)
    return flat[:: -(-flat.numel() // NUM_ELEMENTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Sampled weights with a gradient above `LEAST_GRADIENT`, and how many of them the step changed."""

    changed: float
    driven: float


class ResolutionWatch:
    """Ends a run whose updates are below the resolution of its weights.

    A step counts when it is taken at no less than half of the peak rate (a warm-up and a decay lower it on purpose),
    with a gradient of at least a tenth of the largest norm seen (a policy that has nothing left to learn may stop
    moving), and with `LEAST_SAMPLE` sampled weights whose gradient is above `LEAST_GRADIENT`. Other steps are ignored.
    """

    def __init__(self) -> None:
        """Starts with no step seen."""
        self._largest_norm = 0.0
        self._still: list[float] = []
        """Shares of the most recent consecutive steps that changed almost nothing."""
        self._problem = ""

    def note(
        self, *, share: float, driven: float, norm: float, lr: float, peak_lr: float, option: str, dtype: str
    ) -> None:
        """Record one step with the rate `lr` of `option`: `share` of `driven` sampled weights of `dtype` changed."""
        self._largest_norm = max(self._largest_norm, norm)
        if driven < LEAST_SAMPLE or lr < peak_lr / 2 or norm < self._largest_norm / 10:
            return
        self._still = [*self._still, share] if share < LEAST_SHARE else []
        self._problem = (
            f"updates are below the resolution of the weights: each of the last {len(self._still)} at {option}="
            f"{peak_lr:g} changed at most {max(self._still, default=0):.2%} of the weights with a gradient, held in "
            f"{dtype}; raise {option} (for a pretrained model 1e-6 trains all weights, 1e-5 to 1e-4 an adapter)"
        )

    def check(self) -> None:
        """Raise TrainingError after `NUM_STEPS` consecutive steps that changed less than `LEAST_SHARE` of the
        weights."""
        if len(self._still) >= NUM_STEPS:
            raise TrainingError(self._problem)
