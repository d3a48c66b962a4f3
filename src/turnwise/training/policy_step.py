"""One optimizer step of policy gradient over a global batch, in micro-batches that only sum."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from turnwise.algorithms.aggregate import compute_token_mean
from turnwise.algorithms.kl import compute_k3
from turnwise.algorithms.losses import compute_ppo_clip_loss
from turnwise.batching.collate import MicroBatch, collate
from turnwise.batching.pack import plan_micro_batches
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Max, Mean, Metric, Rate, Sum
from turnwise.core.types import Sample
from turnwise.training.forward import compute_logprobs
from turnwise.training.optimizer import apply_gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """The numbers of the policy loss."""

    clip_low: float
    clip_high: float
    kl_coefficient: float
    entropy_coefficient: float
    temperature: float
    """Of the rollouts."""


def run_policy_step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    *,
    loss: PolicyLoss,
    lr: float,
    max_grad_norm: float,
    micro_batch_tokens: int,
    reference: PreTrainedModel | None = None,
) -> dict[str, Metric]:
    """Take one optimizer step on `samples` and return its metrics.

    The loss is the token mean over all samples: its denominator is counted here once, so any split into micro-batches gives
    the same gradient. `reference` is needed when `loss.kl_coefficient` is not 0. Raises TrainingError, with the weights
    unchanged, when the loss or the gradient is not finite or there is nothing to train on.
    """
    started = time.perf_counter()
    denominator = float(sum(int(s.loss_mask.sum()) for s in samples))
    if denominator == 0:
        raise TrainingError("no token to train on: every trajectory of the batch is invalid; look at the failures in the run folder")
    totals: dict[str, float] = {}
    gap_max = 0.0
    for indices in plan_micro_batches([len(s.token_ids) for s in samples], micro_batch_tokens):
        batch = collate([samples[i] for i in indices], model.device)
        value, sums, gap = _compute_loss(model, batch, loss, denominator, reference)
        if not bool(torch.isfinite(value)):
            optimizer.zero_grad(set_to_none=True)
            origins = ", ".join(f"{samples[i].origin.task_id}/{samples[i].origin.member}" for i in indices[:3])
            raise TrainingError(
                f"the loss is {float(value.detach())} in the micro-batch that starts with trajectories {origins}; the weights were not "
                "changed. Lower the learning rate or resume from the last checkpoint"
            )
        value.backward()
        gap_max = max(gap_max, gap)
        for name, amount in sums.items():
            totals[name] = totals.get(name, 0.0) + amount
    norm = apply_gradients(model, optimizer, lr=lr, max_grad_norm=max_grad_norm)
    seconds = time.perf_counter() - started
    num_tokens = sum(len(s.token_ids) for s in samples)
    metrics: dict[str, Metric] = {name: Mean(total, denominator) for name, total in totals.items()}
    metrics |= {
        "train/grad_norm": Mean(norm),
        "train/lr": Max(lr),
        "train/logprob_gap_max": Max(gap_max),
        "train/tokens": Sum(num_tokens),
        "train/trained_tokens": Sum(denominator),
        "train/tokens_per_s": Rate(num_tokens, seconds),
        "train/seconds": Sum(seconds),
    }
    return metrics


def _compute_loss(
    model: PreTrainedModel, batch: MicroBatch, loss: PolicyLoss, denominator: float, reference: PreTrainedModel | None
) -> tuple[torch.Tensor, dict[str, float], float]:
    """The micro-batch's share of the loss, sums over its tokens for the metrics, and the largest sampler-trainer gap."""
    policy, entropy = compute_logprobs(model, batch, loss.temperature, entropy_gradient=loss.entropy_coefficient != 0)
    sampled = ~batch.behavior_logprobs.isnan()
    behavior = torch.where(sampled, batch.behavior_logprobs, policy.detach())
    losses, clipped = compute_ppo_clip_loss(policy, behavior, batch.advantages, clip_low=loss.clip_low, clip_high=loss.clip_high)
    total = losses - loss.entropy_coefficient * entropy if loss.entropy_coefficient else losses
    gap = (policy.detach() - behavior).abs()
    sums = {
        "train/policy_loss": float(losses.detach().sum()),
        "train/entropy": float(entropy.detach().sum()),
        "train/clip_fraction": float(clipped.sum()),
        "train/logprob_gap_mean": float(gap.sum()),
    }
    if loss.kl_coefficient and reference is not None:
        with torch.no_grad():
            reference_logprobs, _ = compute_logprobs(reference, batch, loss.temperature)
        kl = compute_k3(policy, reference_logprobs)
        total = total + loss.kl_coefficient * kl
        sums["train/kl_reference"] = float(kl.detach().sum())
    sums["train/loss"] = float(total.detach().sum())
    return compute_token_mean(total, denominator), sums, float(gap.max()) if len(gap) else 0.0
