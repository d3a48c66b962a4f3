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
from turnwise.training.masters import find_master

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
        """`parameters` are those of the model. They, or their masters if they have any, hold the gradients with which
        they will be stepped; those without a gradient are skipped."""
        pairs = ((find_master(parameter), parameter) for parameter in parameters)
        with_gradient = [pair for pair in pairs if pair[0].grad is not None and own_rows(pair[0]).numel()]
        self._taken = []
        for stepped, served in with_gradient[:: -(-len(with_gradient) // NUM_TENSORS) or 1]:
            assert stepped.grad is not None
            is_driven = _pick(stepped.grad).abs() > LEAST_GRADIENT
            rounded = None if served is stepped else (served, _pick(served.detach()).clone())
            self._taken.append((stepped, _pick(stepped.detach()).clone(), rounded, is_driven))

    @torch.no_grad()
    def count(self) -> Changes:
        """Count, after the step, which of them changed, and by how much."""
        counts = []
        for stepped, before, rounded, is_driven in self._taken:
            after = _pick(stepped.detach())
            changed = ((after != before) & is_driven).sum()
            driven = is_driven.sum()
            served, short = torch.zeros_like(driven), torch.zeros_like(driven)
            if rounded is not None:
                served, short = ((_pick(rounded[0].detach()) != rounded[1]) & is_driven).sum(), driven
            step, size = (after - before).double().square().sum(), before.double().square().sum()
            counts.append(torch.stack([changed, served, short, driven, step, size]))
        if not counts:
            return Changes()
        changed, served, short, driven, step, size = torch.stack(counts).sum(0).tolist()
        return Changes(changed=changed, served=served, short=short, driven=driven, step=step, size=size)


def _pick(tensor: torch.Tensor) -> torch.Tensor:
    flat = own_rows(tensor).reshape(-1)
    return flat[:: -(-flat.numel() // NUM_ELEMENTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Sampled weights with a gradient above `LEAST_GRADIENT`, how many of them a step changed, and how far all sampled
    weights moved."""

    changed: float = 0.0
    """How many changed in the format in which the optimizer steps."""
    served: float = 0.0
    """How many of those that are held in a short format beside their masters changed in that format, from which engines
    sample: rounding may undo a change."""
    short: float = 0.0
    """How many are held in a short format; 0 in ranks, whose rows are float32."""
    driven: float = 0.0
    step: float = 0.0
    """Sum of the squares of the changes."""
    size: float = 0.0
    """Sum of the squares of the weights before the step."""


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
