"""Supervised steps on demonstrations: cross-entropy on the demonstrator's tokens, observations masked as in RL."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from turnwise.algorithms.aggregate import compute_token_mean
from turnwise.batching.collate import iterate_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, add_totals
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Mean, Metric, Sum
from turnwise.core.types import Sample
from turnwise.models.rows import find_device
from turnwise.training.forward import compute_logprobs
from turnwise.training.loss_scale import scale_loss
from turnwise.training.optimizer import apply_gradients, describe_update


def run_sft_step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    *,
    lr: float,
    max_grad_norm: float,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
    option: str = "sft.lr",
) -> dict[str, Metric]:
    """Take one optimizer step on the mean cross-entropy per trained token. Raises TrainingError naming `option` if the
    loss is not finite."""
    started = time.perf_counter()
    denominator = count_trained(samples)
    if denominator == 0:
        raise TrainingError("no token to train on: the demonstrations are empty")
    total = 0.0
    for _, batch in iterate_micro_batches(
        samples, find_device(model), micro_batch_tokens=micro_batch_tokens, shared_prefix=shared_prefix, ranks=ranks
    ):
        logprobs, _ = compute_logprobs(model, batch, temperature=1.0)
        loss = compute_token_mean(-logprobs, denominator)
        total += float(loss.detach()) * denominator
        problem = None
        if not math.isfinite(total):
            problem = f"the supervised loss is {total}; the weights were not changed. Lower {option}"
        if (problem := ranks.agree(problem)) is not None:
            optimizer.zero_grad(set_to_none=True)
            raise TrainingError(problem)
        scale_loss(loss, optimizer).backward()
    update = apply_gradients(model, optimizer, lr=lr, max_grad_norm=max_grad_norm)
    totals = add_totals({"sft/loss": total} | update.totals, ranks)
    return describe_update(update, totals) | {
        "sft/loss": Mean(totals["sft/loss"], denominator),
        "sft/seconds": Sum(time.perf_counter() - started),
    }


def measure_sft_loss(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    *,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> dict[str, Metric]:
    """Return the mean cross-entropy per trained token of held-out samples. Changes nothing."""
    total, denominator = 0.0, count_trained(samples)
    with torch.no_grad():
        for _, batch in iterate_micro_batches(
            samples, find_device(model), micro_batch_tokens=micro_batch_tokens, shared_prefix=shared_prefix, ranks=ranks
        ):
            logprobs, _ = compute_logprobs(model, batch, temperature=1.0)
            total -= float(logprobs.sum())
    return {"sft/heldout_loss": Mean(add_totals({"loss": total}, ranks)["loss"], denominator)}


def count_trained(samples: Sequence[Sample]) -> float:
    """Return the number of tokens that train."""
    return float(sum(int(sample.loss_mask.sum()) for sample in samples))
