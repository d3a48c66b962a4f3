"""Measures how concentrated the policy is at sampled tokens, for the optimal token baseline; without gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.batching.collate import iterate_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, join_rows
from turnwise.core.types import Sample
from turnwise.models.rows import find_device
from turnwise.training.forward import measure_tokens


@torch.no_grad()
def score_squared_mass(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    temperature: float,
    *,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> list[NDArray[np.generic]]:
    """Compute the sum of squared probabilities at every trained token, in (0, 1]: a float32 array `[K_i]` per
    sample."""
    scores: dict[int, NDArray[np.generic]] = {}
    for indices, batch in iterate_micro_batches(
        samples, find_device(model), micro_batch_tokens=micro_batch_tokens, shared_prefix=shared_prefix, ranks=ranks
    ):
        (mass,), _ = measure_tokens(model, batch, temperature, _measure_mass)
        counts = [int(samples[i].loss_mask.sum()) for i in indices]
        scores |= {i: part.numpy() for i, part in zip(indices, mass.float().cpu().split(counts), strict=True)}
    return join_rows(scores, [int(s.loss_mask.sum()) for s in samples], ranks)


def _measure_mass(distribution: torch.Tensor, row: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return ((2 * distribution).exp().sum(-1)[row],)
