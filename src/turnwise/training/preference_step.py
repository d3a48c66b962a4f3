"""One optimizer step on preference pairs, in micro-batches of whole pairs that only sum."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.algorithms.preference.dpo import PairOutput
from turnwise.batching.collate import collate
from turnwise.batching.pack import plan_micro_batches
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Max, Mean, Metric, Rate, Sum
from turnwise.core.types import Sample
from turnwise.training.forward import compute_logprobs
from turnwise.training.optimizer import apply_gradients

PairFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int], PairOutput]
"""From policy and reference log-probabilities, sequence (2p chosen, 2p + 1 rejected of pair p), `in_step` (all `[K]`)
and the number of pairs to the loss of every pair."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairSide:
    """One side of a pair: the samples of an attempt, and which of their trained tokens belong to the step that is
    judged."""

    samples: tuple[Sample, ...]
    in_step: tuple[NDArray[np.bool_], ...]
    """`[K_i]` per sample."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplePair:
    """Two attempts, the better one first."""

    chosen: PairSide
    rejected: PairSide

    @property
    def num_tokens(self) -> int:
        """Tokens of both sides, context included."""
        return sum(len(s.token_ids) for side in (self.chosen, self.rejected) for s in side.samples)


def run_pair_step(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    pairs: Sequence[SamplePair],
    *,
    loss: PairFunction,
    temperature: float,
    lr: float,
    max_grad_norm: float,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
) -> dict[str, Metric]:
    """One optimizer step of the mean loss over pairs. Both policies are scored at `temperature`, that of the rollouts.

    Raises TrainingError, with the weights unchanged, when the loss is not finite or there is no pair.
    """
    started = time.perf_counter()
    if not pairs:
        raise TrainingError("no pair to train on; lower preference.min_margin or sample larger groups")
    total, correct, margin, num_tokens, num_computed = 0.0, 0.0, 0.0, 0, 0
    for indices in plan_micro_batches([pair.num_tokens for pair in pairs], micro_batch_tokens):
        sides = [side for i in indices for side in (pairs[i].chosen, pairs[i].rejected)]
        samples = [sample for side in sides for sample in side.samples]
        in_step = {"in_step": [mask for side in sides for mask in side.in_step]}
        batch = collate(samples, model.device, in_step, shared_prefix=shared_prefix)
        side_of_sample = torch.tensor(
            [number for number, side in enumerate(sides) for _ in side.samples], device=model.device
        )
        policy, _ = compute_logprobs(model, batch, temperature)
        with torch.no_grad():
            reference_logprobs, _ = compute_logprobs(reference, batch, temperature)
        output = loss(
            policy, reference_logprobs, side_of_sample[batch.sequence], batch.columns["in_step"], len(indices)
        )
        value = output.losses.sum() / len(pairs)
        if not bool(torch.isfinite(value)):
            optimizer.zero_grad(set_to_none=True)
            raise TrainingError(
                f"the pair loss is {float(value.detach())}; the weights were not changed. Lower train.lr"
            )
        value.backward()
        total += float(output.losses.detach().sum())
        correct += float((output.chosen_rewards > output.rejected_rewards).sum())
        margin += float((output.chosen_rewards - output.rejected_rewards).sum())
        num_tokens += sum(pairs[i].num_tokens for i in indices)
        num_computed += len(batch.token_ids)
    norm = apply_gradients(model, optimizer, lr=lr, max_grad_norm=max_grad_norm)
    seconds = time.perf_counter() - started
    return {
        "train/loss": Mean(total, float(len(pairs))),
        "train/pair_accuracy": Mean(correct, float(len(pairs))),
        "train/pair_margin": Mean(margin, float(len(pairs))),
        "train/pairs": Sum(len(pairs)),
        "train/grad_norm": Mean(norm),
        "train/lr": Max(lr),
        "train/tokens": Sum(num_tokens),
        "train/computed_tokens": Sum(num_computed),
        "train/tokens_per_s": Rate(num_tokens, seconds),
        "train/seconds": Sum(seconds),
    }
