"""An implicit process reward model, learned from outcomes alone (PRIME, arXiv 2502.01456).

The reward of a token is `beta (log pi_phi - log pi_ref)`; summed over an attempt it is the logit of success, trained by
cross-entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from turnwise.algorithms.ratios import sum_over_sequence
from turnwise.algorithms.turns.prime import compute_implicit_rewards
from turnwise.batching.collate import TokenColumn, iterate_micro_batches
from turnwise.batching.ranks import ALONE, Ranks, add_totals
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Mean, Metric
from turnwise.core.types import Sample
from turnwise.models.rows import find_device
from turnwise.training.forward import compute_logprobs, score_logprobs
from turnwise.training.loss_scale import scale_loss
from turnwise.training.optimizer import BuildOptimizer, apply_gradients, build_optimizer
from turnwise.training.placement import WHOLE, Placement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImplicitReward:
    """The reward model and its optimizer."""

    module: PreTrainedModel
    """pi_phi: a copy of the policy that RL starts from, so that every reward is 0 at first."""
    optimizer: torch.optim.Optimizer
    lr: float
    beta: float


def build_implicit_reward(
    policy: PreTrainedModel,
    placement: Placement = WHOLE,
    *,
    lr: float,
    beta: float,
    betas: tuple[float, float],
    weight_decay: float,
    build: BuildOptimizer | None = None,
) -> ImplicitReward:
    """Build a reward model as a copy of `policy` as it is now; `build` is that of `build_optimizer`."""
    module = placement.place(placement.copy(policy))
    return ImplicitReward(
        module=module,
        optimizer=build_optimizer(
            module,
            lr=lr,
            betas=betas,
            weight_decay=weight_decay,
            build=build,
            computes_in=placement.find_dtype(policy),
        ),
        lr=lr,
        beta=beta,
    )


def score_implicit_rewards(
    model: ImplicitReward,
    samples: Sequence[Sample],
    reference_logprobs: TokenColumn,
    *,
    temperature: float,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> list[NDArray[np.generic]]:
    """Compute the rewards of all trained tokens, one float64 array `[K_i]` per sample; `reference_logprobs` has the
    same shape."""
    scores = score_logprobs(
        model.module,
        samples,
        temperature,
        micro_batch_tokens=micro_batch_tokens,
        shared_prefix=shared_prefix,
        ranks=ranks,
    )
    return [
        compute_implicit_rewards(np.asarray(scored, np.float64), np.asarray(reference, np.float64), beta=model.beta)
        for scored, reference in zip(scores, reference_logprobs, strict=True)
    ]


def run_implicit_reward_step(
    model: ImplicitReward,
    samples: Sequence[Sample],
    outcomes: Sequence[float],
    reference_logprobs: TokenColumn,
    *,
    temperature: float,
    max_grad_norm: float,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
) -> dict[str, Metric]:
    """Take one optimizer step on the mean cross-entropy over samples between `sigmoid(sum of rewards)` and the outcome.

    A branch counts as a separate attempt. Raises TrainingError, with the weights unchanged, if there is no sample, an
    outcome lies outside [0, 1], or the loss is not finite.
    """
    if not samples:
        raise TrainingError("no attempt to learn an implicit reward from: every trajectory of the batch is invalid")
    if not all(0 <= outcome <= 1 for outcome in outcomes):
        raise TrainingError(
            f"rewards from {min(outcomes)} to {max(outcomes)} are not probabilities; an implicit reward model needs "
            "outcomes in [0, 1]"
        )
    totals = {"loss": 0.0, "correct": 0.0}
    device = find_device(model.module)
    columns = {"reference": reference_logprobs}
    for indices, batch in iterate_micro_batches(
        samples, device, columns, micro_batch_tokens=micro_batch_tokens, shared_prefix=shared_prefix, ranks=ranks
    ):
        logprobs, _ = compute_logprobs(model.module, batch, temperature)
        sums = sum_over_sequence(model.beta * (logprobs - batch.columns["reference"]), batch.sequence)
        # Every token holds its attempt's sum; one token per attempt is enough.
        firsts = torch.ones_like(batch.sequence, dtype=torch.bool)
        firsts[1:] = batch.sequence[1:] != batch.sequence[:-1]
        logits, target = sums[firsts], torch.tensor([float(outcomes[i]) for i in indices], device=device)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        loss = losses.sum() / len(samples)
        problem = None
        if not bool(torch.isfinite(loss)):
            problem = (
                f"the implicit reward's loss is {float(loss.detach())}; it was not changed. Lower credit.implicit.lr"
            )
        if (problem := ranks.agree(problem)) is not None:
            model.optimizer.zero_grad(set_to_none=True)
            raise TrainingError(problem)
        scale_loss(loss, model.optimizer).backward()
        totals["loss"] += float(losses.detach().sum())
        totals["correct"] += float(((logits.detach() > 0) == (target > 0.5)).sum())
    apply_gradients(model.module, model.optimizer, lr=model.lr, max_grad_norm=max_grad_norm)
    count, totals = float(len(samples)), add_totals(totals, ranks)
    return {
        "train/implicit_loss": Mean(totals["loss"], count),
        "train/implicit_accuracy": Mean(totals["correct"], count),
    }
