"""Forward passes over micro-batches: distributions and log-probabilities of trained tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.batching.collate import MicroBatch, iterate_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, join_rows
from turnwise.core.types import Sample
from turnwise.models.forward import Runs, compute_logits, reduce_rows
from turnwise.models.head import count_chunks
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
    """Compute the log-probabilities of all tokens `[R, V]` at `temperature`, and on request the last hidden state `[R,
    H]`.

    `temperature` must be the one the tokens were sampled with, or ratios are wrong from the first step. Output rows
    that predict no trained token are never computed, and those that predict several only once; `batch.row` maps tokens
    to rows. Results are float32, or float64 if the model is. Routers use the experts recorded in the batch, if any;
    then `routing`, made by `replay_experts`, records where they would have chosen others.
    """
    logits, hidden = compute_logits(model, to_runs(batch), batch.predict_at, routing=routing or replay_experts(batch))
    return _normalise(logits, temperature), hidden if with_hidden else None


def _normalise(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return (wide if temperature == 1 else wide / temperature).log_softmax(-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenScores:
    """The policy's scores that a micro-batch's loss reads."""

    logprobs: torch.Tensor
    """`[K]` log-probabilities of the trained tokens."""
    entropy: torch.Tensor
    """`[K]` entropies."""
    hidden: torch.Tensor
    """`[R, H]` last hidden states at which the tokens are predicted."""
    distribution: torch.Tensor | None
    """`[R, V]` log-probabilities; None unless requested."""


def compute_scores(
    model: PreTrainedModel,
    batch: MicroBatch,
    temperature: float,
    *,
    entropy_gradient: bool = False,
    keeps_distribution: bool = False,
    routing: ReplayedRouting | None = None,
) -> TokenScores:
    """Compute log-probabilities and entropies of the trained tokens; see `compute_distribution`.

    If the logits of all rows exceed `models.head.CHUNK_NUMBERS`, they are computed for some rows at a time, unless the
    distribution is to be kept. The entropy carries a gradient only on request.
    """
    if keeps_distribution or count_chunks(model, len(batch.predict_at)) == 1:
        distribution, hidden = compute_distribution(model, batch, temperature, with_hidden=True, routing=routing)
        assert hidden is not None
        logprobs, entropy = select_logprobs(distribution, batch, entropy_gradient=entropy_gradient)
        kept = distribution if keeps_distribution else None
        return TokenScores(logprobs=logprobs, entropy=entropy, hidden=hidden, distribution=kept)

    def measure(distribution: torch.Tensor, row: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if torch.is_grad_enabled() and not entropy_gradient:
            # The backward pass, in which no gradient comes from the entropy.
            logprobs = distribution[row, targets]
            return logprobs, logprobs.new_zeros(len(logprobs))
        return _select(distribution, row, targets, entropy_gradient=entropy_gradient)

    (logprobs, entropy), hidden = measure_tokens(model, batch, temperature, measure, routing=routing)
    entropy = entropy if entropy_gradient else entropy.detach()
    return TokenScores(logprobs=logprobs, entropy=entropy, hidden=hidden, distribution=None)


Measure = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Maps the distribution `[C, V]` of some rows, and the row `[E]` and target `[E]` of the E trained tokens predicted
there, to tensors `[E]`."""


def measure_tokens(
    model: PreTrainedModel,
    batch: MicroBatch,
    temperature: float,
    measure: Measure,
    *,
    routing: ReplayedRouting | None = None,
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Apply `measure` to the trained tokens, some rows of logits at a time. Returns its results, `[K]` each, and the
    last hidden states `[R, H]`."""

    def reduce(logits: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, ...]:
        place = batch.row.new_full((len(batch.predict_at),), -1)
        place[indices] = torch.arange(len(indices), device=place.device)
        row = place[batch.row]
        tokens = torch.nonzero(row >= 0)[:, 0]
        return (tokens, *measure(_normalise(logits, temperature), row[tokens], batch.targets[tokens]))

    (tokens, *measured), hidden = reduce_rows(
        model, to_runs(batch), batch.predict_at, reduce, routing=routing or replay_experts(batch)
    )
    back = tokens.argsort()
    return tuple(each[back] for each in measured), hidden


def replay_experts(batch: MicroBatch) -> ReplayedRouting | None:
    """Return routing that makes routers use the experts recorded in the batch; None if it has none."""
    return None if batch.experts is None else ReplayedRouting(batch.experts)


def to_runs(batch: MicroBatch) -> Runs:
    """Return the tokens of a micro-batch as runs that say who attends to whom."""
    return Runs(
        token_ids=batch.token_ids,
        positions=batch.positions,
        lengths=batch.lengths,
        seen=batch.seen,
        num_seen=batch.num_seen,
        images=batch.images,
    )


def select_logprobs(
    distribution: torch.Tensor, batch: MicroBatch, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `logprobs [K]` and `entropy [K]` of the trained tokens, from a distribution `[R, V]`.

    The entropy carries a gradient only on request.
    """
    return _select(distribution, batch.row, batch.targets, entropy_gradient=entropy_gradient)


def _select(
    distribution: torch.Tensor, row: torch.Tensor, targets: torch.Tensor, *, entropy_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(distribution.exp() * distribution).sum(-1)
    return distribution[row, targets], entropy[row]


def compute_logprobs(
    model: PreTrainedModel, batch: MicroBatch, temperature: float, *, entropy_gradient: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute `logprobs [K]` of the targets at `temperature`, and `entropy [K]`; see `compute_scores`."""
    scores = compute_scores(model, batch, temperature, entropy_gradient=entropy_gradient)
    return scores.logprobs, scores.entropy


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
    """Score every trained token under `model`: one float32 array `[K_i]` of log-probabilities per sample."""
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
    """Like `score_logprobs`, with a copy of the weights in float32."""
    return score_logprobs(copy.deepcopy(model).float(), samples, temperature, **packing)
