"""Measures how concentrated the policy's distributions are where tokens were sampled; without gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.batching.collate import iterate_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, join_rows
from turnwise.core.batch import Column, Wanted
from turnwise.core.types import Sample
from turnwise.models.rows import find_device
from turnwise.training.forward import measure_tokens


def compute_squared_mass(distribution: torch.Tensor) -> torch.Tensor:
    """Return the sum of squared probabilities `[R]`, in (0, 1], of log-probabilities `[R, V]`: for the optimal token
    baseline."""
    return (2 * distribution).exp().sum(-1)


def compute_entropy(distribution: torch.Tensor) -> torch.Tensor:
    """Return the entropies `[R]`, in [0, log V] nats, of log-probabilities `[R, V]`. A token that cannot be sampled
    counts 0."""
    return -(distribution.exp() * distribution.nan_to_num(neginf=0.0)).sum(-1)


def compute_self_certainty(distribution: torch.Tensor) -> torch.Tensor:
    """Return the divergences KL(U || p) `[R]`, at least 0, of the uniform distribution from log-probabilities `[R, V]`
    (self-certainty, arXiv 2502.18581): -log V - mean(log p).

    Deviation: U is uniform over the tokens that can be sampled; with one of probability 0 it would be infinite.
    """
    possible = distribution != -math.inf
    count = possible.sum(-1)
    return -count.log() - distribution.masked_fill(~possible, 0.0).sum(-1) / count


CONCENTRATIONS: Mapping[Wanted, Callable[[torch.Tensor], torch.Tensor]] = {
    "squared_mass": compute_squared_mass,
    "policy_entropy": compute_entropy,
    "self_certainty": compute_self_certainty,
}
"""What can be measured, by the name of its column."""


@torch.no_grad()
def score_concentration(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    temperature: float,
    wanted: Set[Wanted],
    *,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> dict[str, Column]:
    """Measure the distribution that every trained token was drawn from, at `temperature`, in one pass: a float32 array
    `[K_i]` per sample for each measure in `wanted`; other names are left out."""
    names = [name for name in CONCENTRATIONS if name in wanted]

    def measure(distribution: torch.Tensor, row: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(CONCENTRATIONS[name](distribution)[row] for name in names)

    scores: dict[str, dict[int, NDArray[np.generic]]] = {name: {} for name in names}
    for indices, batch in iterate_micro_batches(
        samples, find_device(model), micro_batch_tokens=micro_batch_tokens, shared_prefix=shared_prefix, ranks=ranks
    ):
        measured, _ = measure_tokens(model, batch, temperature, measure)
        counts = [int(samples[i].loss_mask.sum()) for i in indices]
        for name, values in zip(names, measured, strict=True):
            parts = values.float().cpu().split(counts)
            scores[name] |= {i: part.numpy() for i, part in zip(indices, parts, strict=True)}
    counts = [int(sample.loss_mask.sum()) for sample in samples]
    return {name: tuple(join_rows(by_sample, counts, ranks)) for name, by_sample in scores.items()}
