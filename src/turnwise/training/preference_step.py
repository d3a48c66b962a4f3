"""One optimizer step on preference pairs, in micro-batches of whole pairs that only sum."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel

from turnwise.algorithms.preference.dpo import PairOutput
from turnwise.batching.collate import collate
from turnwise.batching.pack import plan_micro_batches
from turnwise.core.batch import Pair
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Max, Mean, Metric, Rate, Sum
from turnwise.core.types import Sample
from turnwise.training.forward import compute_logprobs
from turnwise.training.optimizer import apply_gradients

PairFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int], PairOutput]
"""From policy and reference log-probabilities, sequence (2p chosen, 2p + 1 rejected of pair p), `in_step` (all `[K]`)
and the number of pairs to the loss of every pair."""


def run_pair_step(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    pairs: Sequence[Pair],
    *,
    loss: PairFunction,
    temperature: float,
    lr: float,
    max_grad_norm: float,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
) -> dict[str, Metric]:
    """One optimizer step of the mean loss over pairs of `samples`.

    Both policies are scored at `temperature`, that of the rollouts.

    Raises TrainingError, with the weights unchanged, when the loss is not finite or there is no pair.
    """
    started = time.perf_counter()
    if not pairs:
        raise TrainingError("no pair to train on; lower preference.min_margin or sample larger groups")
    total, correct, margin, num_tokens, num_computed = 0.0, 0.0, 0.0, 0, 0
    lengths = [sum(len(samples[i].token_ids) for i in (*pair.chosen, *pair.rejected)) for pair in pairs]
    for indices in plan_micro_batches(lengths, micro_batch_tokens):
        sides = [side for i in indices for side in (pairs[i].chosen, pairs[i].rejected)]
        masks = [mask for i in indices for mask in (*pairs[i].chosen_in_step, *pairs[i].rejected_in_step)]
        both = [samples[i] for side in sides for i in side]
        batch = collate(both, model.device, {"in_step": masks}, shared_prefix=shared_prefix)
        side_of_sample = torch.tensor([number for number, side in enumerate(sides) for _ in side], device=model.device)
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
        num_tokens += sum(lengths[i] for i in indices)
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
