"""One optimizer step on preference pairs, in micro-batches of whole pairs that only sum."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.algorithms.preference.dpo import PairOutput
from turnwise.batching.collate import MicroBatch, collate, collate_nothing
from turnwise.batching.pack import plan_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, add_totals, plan_rounds
from turnwise.core.batch import Pair
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Max, Mean, Metric, Rate, Sum
from turnwise.core.types import Sample
from turnwise.models.rows import find_device
from turnwise.training.forward import compute_logprobs
from turnwise.training.loss_scale import scale_loss
from turnwise.training.optimizer import apply_gradients, describe_update

PairFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int], PairOutput]
"""Maps policy and reference log-probabilities, sequence (2p chosen, 2p + 1 rejected of pair p), `in_step` (all `[K]`)
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
    ranks: Ranks = ALONE,
) -> dict[str, Metric]:
    """Take one optimizer step on the mean loss over pairs of `samples`.

    Both policies are scored at the rollouts' `temperature`.

    Raises TrainingError, with the weights unchanged, if the loss is not finite or there is no pair.
    """
    started = time.perf_counter()
    if not pairs:
        raise TrainingError("no pair to train on; lower preference.min_margin or sample larger groups")
    lengths = [sum(len(samples[i].token_ids) for i in (*pair.chosen, *pair.rejected)) for pair in pairs]
    totals = dict.fromkeys(("loss", "correct", "margin", "computed"), 0.0)
    rounds = plan_rounds(
        lambda limit: plan_micro_batches(lengths, limit),
        lambda indices: sum(lengths[i] for i in indices),
        micro_batch_tokens,
        ranks.size,
    )
    for round_ in rounds:
        indices = round_[ranks.index]
        paired = [pairs[i] for i in indices]
        batch, side = _collate_pairs(samples, paired, find_device(model), shared_prefix=shared_prefix)
        policy, _ = compute_logprobs(model, batch, temperature)
        with torch.no_grad():
            reference_logprobs, _ = compute_logprobs(reference, batch, temperature)
        output = loss(policy, reference_logprobs, side, batch.columns["in_step"], len(indices))
        value = output.losses.sum() / len(pairs)
        problem = None
        if not bool(torch.isfinite(value)):
            problem = f"the pair loss is {float(value.detach())}; the weights were not changed. Lower train.lr"
        if (problem := ranks.agree(problem)) is not None:
            optimizer.zero_grad(set_to_none=True)
            raise TrainingError(problem)
        scale_loss(value, optimizer).backward()
        totals["loss"] += float(output.losses.detach().sum())
        totals["correct"] += float((output.chosen_rewards > output.rejected_rewards).sum())
        totals["margin"] += float((output.chosen_rewards - output.rejected_rewards).sum())
        totals["computed"] += len(batch.token_ids)
    update = apply_gradients(model, optimizer, lr=lr, max_grad_norm=max_grad_norm)
    totals, num_tokens = add_totals(totals | update.totals, ranks), sum(lengths)
    seconds = time.perf_counter() - started
    return describe_update(update, totals) | {
        "train/loss": Mean(totals["loss"], float(len(pairs))),
        "train/pair_accuracy": Mean(totals["correct"], float(len(pairs))),
        "train/pair_margin": Mean(totals["margin"], float(len(pairs))),
        "train/pairs": Sum(len(pairs)),
        "train/lr": Max(lr),
        "train/tokens": Sum(num_tokens),
        "train/computed_tokens": Sum(int(totals["computed"])),
        "train/tokens_per_s": Rate(num_tokens, seconds),
        "train/seconds": Sum(seconds),
    }


def _collate_pairs(
    samples: Sequence[Sample], pairs: Sequence[Pair], device: torch.device, *, shared_prefix: bool
) -> tuple[MicroBatch, torch.Tensor]:
    """Collate a micro-batch of whole pairs with the column `in_step`. Also returns the side `[K]` of its tokens: 2p
    chosen, 2p + 1 rejected of pair p."""
    sides = [side for pair in pairs for side in (pair.chosen, pair.rejected)]
    masks = [mask for pair in pairs for mask in (*pair.chosen_in_step, *pair.rejected_in_step)]
    if not pairs:
        batch = collate_nothing(device, {"in_step": [np.zeros(0, np.bool_)]})
        return batch, batch.sequence
    both = [samples[i] for side in sides for i in side]
    batch = collate(both, device, {"in_step": masks}, shared_prefix=shared_prefix)
    side_of_sample = torch.tensor([number for number, side in enumerate(sides) for _ in side], device=device)
    return batch, side_of_sample[batch.sequence]
