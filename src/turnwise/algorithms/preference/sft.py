"""Supervised loss on given tokens."""

from __future__ import annotations

import torch


def compute_nll_loss(policy_logprobs: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """`-weight * log policy` per trained token, `[K]`; None weighs every token 1.

    Aggregate with `aggregate.compute_weights`. Weights are detached. Raises ValueError when the shapes differ.
    """
    if weights is None:
        return -policy_logprobs
    if weights.shape != policy_logprobs.shape:
        raise ValueError(
            f"weights have shape {tuple(weights.shape)}, policy_logprobs {tuple(policy_logprobs.shape)}; one per token "
            "is needed"
        )
    return -weights.detach() * policy_logprobs
