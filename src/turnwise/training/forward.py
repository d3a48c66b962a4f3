"""Forward passes over micro-batches: distributions and log-probabilities of trained tokens."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.batching.collate import MicroBatch, iterate_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, join_rows
from turnwise.core.types import Sample
from turnwise.models.forward import Runs, compute_logits
from turnwise.models.routing import ReplayedRouting
from turnwise.models.rows import find_device


def compute_distribution(
    model: PreTrainedModel,
    batch: MicroBatch,
    temperature: float,
    *,
    with_hidden: bool = False,
    routing: ReplayedRouting | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities of all tokens `[R, V]` at `temperature`, and the last hidden state `[R, H]` where asked for.

    `temperature` must be the one the tokens were sampled with, or ratios are wrong from the first step. Output rows
    that predict no trained token are never computed, and those that predict several only once; `batch.row` says whose
    they are. In float32, or float64 where the model is. Routers take the experts of the batch where it has any; then
    `routing`, made by `replay_experts`, says afterwards where they would have taken others.
    """
    logits, hidden = compute_logits(model, to_runs(batch), batch.predict_at, routing=routing or replay_experts(batch))
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return (wide if temperature == 1 else wide / temperature).log_softmax(-1), hidden if with_hidden else None


def replay_experts(batch: MicroBatch) -> ReplayedRouting | None:
    """What lets routers take the experts of the batch; None where it has none."""
    return None if batch.experts is None else ReplayedRouting(batch.experts)


def to_runs(batch: MicroBatch) -> Runs:
    """The tokens of a micro-batch, and who attends to whom."""
    return Runs(
        token_ids=batch.token_ids,
        positions=batch.positions,
        lengths=batch.lengths,
        seen=batch.seen,
        num_seen=batch.num_seen,
    )


def select_logprobs(
    distribution: torch.Tensor, batch: MicroBatch, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`logprobs [K]` and `entropy [K]` of the trained tokens, from a distribution `[R, V]`.

    The entropy carries a gradient only when asked to.
    """
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(distribution.exp() * distribution).sum(-1)
    return distribution[batch.row, batch.targets], entropy[batch.row]


def compute_logprobs(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`logprobs [K]` of the targets at `temperature`, and `entropy [K]`; see `compute_distribution`."""
    distribution, _ = compute_distribution(model, batch, temperature)
    return select_logprobs(distribution, batch, entropy_gradient=entropy_gradient)


@torch.no_grad()
def score_logprobs(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    temperature: float,
    *,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> list[NDArray[np.generic]]:
    """Log-probability of every trained token under `model`, one float32 array `[K_i]` per sample."""
    scores: dict[int, NDArray[np.generic]] = {}
    for indices, batch in iterate_micro_batches(
        samples, find_device(model), micro_batch_tokens=micro_batch_tokens, shared_prefix=shared_prefix, ranks=ranks
    ):
        logprobs, _ = compute_logprobs(model, batch, temperature)
        counts = [int(samples[i].loss_mask.sum()) for i in indices]
        scores |= {i: part.numpy() for i, part in zip(indices, logprobs.float().cpu().split(counts), strict=True)}
    return join_rows(scores, [int(s.loss_mask.sum()) for s in samples], ranks)


def score_exact(
    model: PreTrainedModel, samples: Sequence[Sample], temperature: float, **packing: Any
) -> list[NDArray[np.generic]]:
    """`score_logprobs` with the weights in float32, which are copied for it."""
    return score_logprobs(copy.deepcopy(model).float(), samples, temperature, **packing)
