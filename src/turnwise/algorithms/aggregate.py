"""From per-token losses to one number. The denominator is computed once per optimizer step and passed in."""

from __future__ import annotations

import torch


def compute_token_mean(losses: torch.Tensor, denominator: float) -> torch.Tensor:
    """`sum(losses) / denominator`, where `denominator` counts the trained tokens of the *whole* optimizer step.

    Summed over micro-batches this is the mean over all tokens, however the tokens were split (DAPO's token-level loss).
    An empty `losses` gives 0. Raises ValueError when the denominator is not positive.
    """
    if denominator <= 0:
        raise ValueError(f"denominator is {denominator}; it counts the trained tokens of the optimizer step and must be positive")
    return losses.sum() / denominator
