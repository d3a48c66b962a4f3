"""Forward passes over packed micro-batches: distributions and log-probabilities of trained tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.batching.collate import MicroBatch, iterate_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, join_rows
from turnwise.core.types import Sample
from turnwise.models.attention import AttentionPlan, PackedAttention
from turnwise.models.routing import ReplayedRouting
from turnwise.models.rows import find_device

PlanAttention = Callable[[list[int], torch.Tensor | None, list[int]], AttentionPlan]
"""From the runs of a micro-batch (`lengths`, `seen`, `num_seen`) to who attends to whom."""


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
    seen: list[torch.Tensor] = []
    # A hook, because transformers records hidden states of no copy of a model, and of all layers.
    hook = model.base_model.register_forward_hook(lambda _, __, output: seen.append(output.last_hidden_state))
    try:
        output = model(
            input_ids=batch.token_ids[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=batch.predict_at,
            **plan_forward(batch, routing or replay_experts(batch)),
        )
    finally:
        hook.remove()
    hidden = seen[0][0, batch.predict_at] if with_hidden else None
    logits = output.logits[0]
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return (wide if temperature == 1 else wide / temperature).log_softmax(-1), hidden


def replay_experts(batch: MicroBatch) -> ReplayedRouting | None:
    """What lets routers take the experts of the batch; None where it has none."""
    return None if batch.experts is None else ReplayedRouting(batch.experts)


def plan_forward(
    batch: MicroBatch, routing: ReplayedRouting | None, attention: PlanAttention = PackedAttention
) -> dict[str, Any]:
    """What a model's forward is told about a micro-batch: who attends to whom, and what its routers take."""
    plan: dict[str, Any] = {"attention_plan": attention(batch.lengths, batch.seen, batch.num_seen)}
    return plan if routing is None else plan | {"routing": routing}


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
