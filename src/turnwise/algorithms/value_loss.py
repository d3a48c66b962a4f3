"""The critic's loss (PPO's clipped form, as in Schulman et al.

2017's code), one value per token; summing is `aggregate`'s.
"""

from __future__ import annotations

import torch

from turnwise.algorithms.options import check_range


def compute_value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, *, clip: float | None = 0.2
) -> tuple[torch.Tensor, torch.Tensor]:
    """`0.5 * max((V - R)^2, (V_clip - R)^2)` per token, `V_clip = V_old + clamp(V - V_old, -clip, +clip)`.

    Args:
        values: `[K]`, with gradient, at sampled tokens only (at turns' first tokens only for turn-level GAE).
        old_values: `[K]`, from the critic that computed the returns.
        returns: `[K]`, advantages before whitening plus `old_values`.
        clip: at least 0, in units of the reward; None turns clipping off, leaving half the squared error.

    Returns:
        `losses [K]` to be minimised and `clipped [K]` (bool): where the clipped term is the larger, so that the
        gradient is zero. Never below the unclipped loss; equal to it where `|V - V_old| <= clip`.

    Raises:
        ValueError: the shapes differ, or clip is negative.
    """
    if not values.shape == old_values.shape == returns.shape:
        raise ValueError(
            f"values {list(values.shape)}, old_values {list(old_values.shape)} and returns {list(returns.shape)} must "
            "have the same shape"
        )
    squares = (values - returns).square()
    if clip is None:
        return 0.5 * squares, torch.zeros_like(values, dtype=torch.bool)
    check_range("clip", clip, 0)
    clipped_squares = (old_values + (values - old_values).clamp(-clip, clip) - returns).square()
    return 0.5 * torch.maximum(squares, clipped_squares), clipped_squares > squares
