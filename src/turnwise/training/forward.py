"""Forward passes over packed micro-batches: distributions and log-probabilities of trained tokens, with and without gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.batching.collate import MicroBatch, collate
from turnwise.batching.pack import plan_micro_batches
from turnwise.core.types import Sample
from turnwise.models.attention import PackedAttention


def compute_distribution(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, *, with_hidden: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities of all tokens `[K, V]` in float32 at `temperature`, and the last hidden state `[K, H]` where asked for.

    `temperature` must be the one the tokens were sampled with, or ratios are wrong from the first step. Output rows that predict no
    trained token are never computed.
    """
    output = model(
        input_ids=batch.token_ids[None],
        position_ids=batch.positions[None],
        use_cache=False,
        logits_to_keep=batch.predict_at,
        attention_plan=PackedAttention(batch.lengths),
        output_hidden_states=with_hidden,
    )
    hidden = output.hidden_states[-1][0, batch.predict_at] if with_hidden else None
    return (output.logits[0].float() / temperature).log_softmax(-1), hidden


def select_logprobs(
    distribution: torch.Tensor, targets: torch.Tensor, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`logprobs [K]` of the targets and `entropy [K]` of a distribution `[K, V]`. The entropy carries a gradient only when asked to."""
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(distribution.exp() * distribution).sum(-1)
    return distribution.gather(-1, targets[:, None])[:, 0], entropy


def compute_logprobs(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`logprobs [K]` of the targets under the policy at `temperature`, and `entropy [K]`, both float32; see `compute_distribution`."""
    distribution, _ = compute_distribution(model, batch, temperature)
    return select_logprobs(distribution, batch.targets, entropy_gradient=entropy_gradient)


@torch.no_grad()
def score_logprobs(
    model: PreTrainedModel, samples: Sequence[Sample], temperature: float, *, micro_batch_tokens: int
) -> list[NDArray[np.generic]]:
    """Log-probability of every trained token under `model`, one float32 array `[K_i]` per sample."""
    scores: list[NDArray[np.generic]] = []
    for indices in plan_micro_batches([len(s.token_ids) for s in samples], micro_batch_tokens):
        batch = collate([samples[i] for i in indices], model.device)
        logprobs, _ = compute_logprobs(model, batch, temperature)
        counts = [int(samples[i].loss_mask.sum()) for i in indices]
        scores += [part.numpy() for part in logprobs.cpu().split(counts)]
    return scores
