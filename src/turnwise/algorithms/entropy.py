"""The entropy bonus and its adaptive coefficient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def compute_entropy_loss(entropy: torch.Tensor, *, coefficient: float) -> torch.Tensor:
    """`-coefficient * entropy`, `[K]`: added to the policy's losses before aggregation, so it shares their weights.

    Entropy in nats.
    """
    return -coefficient * entropy


def update_entropy_coefficient(
    coefficient: float, measured_entropy: float, *, target: float, step: float, max_coefficient: float
) -> float:
    """Return the next coefficient: `step` more if the entropy is below `target`, else `step` less, in [0,
    max_coefficient].

    Adaptive entropy control of Skywork-OR1 (arXiv 2505.22312); its recipe: step 0.005, target 0.2 nats per token.
    Deviations: bounded above, and the bonus stays on above the target until the coefficient has come down. Raises
    ValueError when the measurement is not finite or a bound is negative.
    """
    if not math.isfinite(measured_entropy):
        raise ValueError(f"measured entropy is {measured_entropy}; the coefficient needs a finite value")
    if not (step >= 0 and max_coefficient >= 0):
        raise ValueError(f"step {step} and max_coefficient {max_coefficient} must be at least 0")
    moved = coefficient + (step if measured_entropy < target else -step)
    return min(max(moved, 0.0), max_coefficient)
