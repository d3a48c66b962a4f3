"""One optimizer step of policy gradient over a global batch, in micro-batches that only sum.

Everything that needs the whole batch (weights, importance corrections, tokens that a loss ranks against each other) is
computed before the first micro-batch and passed as columns beside the tokens, so that the split cannot matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.algorithms.aggregate import Aggregation
from turnwise.algorithms.corrections import Correction
from turnwise.algorithms.entropy import compute_entropy_loss
from turnwise.algorithms.kl import KLKind, compute_k3, compute_kl
from turnwise.algorithms.losses.inputs import LossFunction, LossInputs
from turnwise.algorithms.preference.distillation import compute_reverse_kl_loss
from turnwise.algorithms.ratios import MAX_LOG_RATIO
from turnwise.batching.collate import (
    MicroBatch,
    Packing,
    TokenColumn,
    TokenColumns,
    iterate_micro_batches,
    split_column,
)
from turnwise.batching.ranks import ALONE, Ranks, add_totals, find_maxima
from turnwise.batching.weights import compute_sample_weights
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Max, Mean, Metric, Rate, Sum
from turnwise.core.types import Sample
from turnwise.models.rows import find_device
from turnwise.training.critic import Critic, compute_micro_batch_value_loss
from turnwise.training.forward import (
    compute_distribution,
    compute_logprobs,
    compute_scores,
    replay_experts,
    score_logprobs,
)
from turnwise.training.loss_scale import scale_loss
from turnwise.training.optimizer import apply_together, describe_update
from turnwise.training.ratio_metrics import NO_RATIOS, describe_extremes, measure_ratios

WEIGHTED = ("train/loss", "train/policy_loss", "train/teacher_kl")
"""Metrics that are already sums over the step, not token sums to be divided."""
RATIOS, SQUARED_RATIOS = "ratios", "squared_ratios"
"""Sums that serve only to compute the effective sample size."""
COMPUTED = "computed"
"""Computed tokens of all micro-batches."""
MOVED = "train/moved_experts"
GAP = "gap"
"""Largest difference between sampler and trainer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """The loss of a step and its options."""

    function: LossFunction
    """The policy loss of packed tokens."""
    temperature: float
    """Sampling temperature of the rollouts."""
    aggregation: Aggregation = "token_mean"
    constant: float | None = None
    """Divisor of the aggregation "constant"."""
    rejected: Literal["in", "out"] = "in"
    batch_rule: bool = False
    """Whether the loss marks tokens by comparing them with the whole step's (see `LossMethod.batch_rule`)."""
    correct: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Correction] | None = None
    """Maps old and behavior log-probabilities and the sequence index to weights; None corrects nothing."""
    kl_kind: KLKind = "k3"
    kl_coefficient: float = 0.0
    """Weight of the divergence from the reference."""
    entropy_coefficient: float = 0.0
    teacher_coefficient: float = 0.0
    """Weight of the exact reverse KL to the teacher."""


def run_policy_step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[Sample],
    *,
    loss: PolicyLoss,
    lr: float,
    max_grad_norm: float,
    micro_batch_tokens: int,
    shared_prefix: bool = False,
    ranks: Ranks = ALONE,
    columns: TokenColumns | None = None,
    reference: PreTrainedModel | None = None,
    teacher: PreTrainedModel | None = None,
    critic: Critic | None = None,
) -> dict[str, Metric]:
    """Take one optimizer step on `samples` and return its metrics.

    Any split into micro-batches yields the same gradient.

    Args:
        shared_prefix: compute a prefix that several samples share once; the gradient is the same up to rounding.
        ranks: the processes that share the step, each with a shard of every model and the whole of the batch.
        columns: numbers per trained token: `old_logprobs` (the sampler's if it is missing), and for a critic that
            shares the policy's layers those of `compute_value_columns`.
        reference: needed when `loss.kl_coefficient` is not 0.
        teacher: needed when `loss.teacher_coefficient` is not 0.
        critic: one that shares the policy's layers is trained in the same step; None trains none.

    Raises TrainingError, with the weights of policy and critic unchanged, if the loss or a gradient is not finite or
    there is nothing to train on.
    """
    started = time.perf_counter()
    num_trained = float(sum(int(s.loss_mask.sum()) for s in samples))
    if num_trained == 0:
        raise TrainingError(
            "no token to train on: every trajectory of the batch is invalid; see the failures in the run folder"
        )
    packing = Packing(micro_batch_tokens=micro_batch_tokens, shared_prefix=shared_prefix, ranks=ranks)
    prepared, metrics = _prepare(model, samples, loss, columns or {}, packing)
    # Every rank sums the same names, even one whose micro-batches are empty.
    totals = {MOVED: 0.0} if any(sample.experts is not None for sample in samples) else {}
    maxima, num_computed = {GAP: 0.0, **NO_RATIOS}, 0
    for indices, batch in iterate_micro_batches(samples, find_device(model), prepared, **packing):
        try:
            value, sums, largest = _compute_loss(model, batch, loss, reference, teacher, critic)
            problem = _find_problem(value, [samples[i] for i in indices])
        except TrainingError as error:  # raised by a custom loss; the other ranks learn of it too
            problem = str(error)
        if (problem := ranks.agree(problem)) is not None:
            _forget(optimizer, critic)
            raise TrainingError(problem)
        scale_loss(value, optimizer).backward()
        maxima = {name: max(maxima[name], number) for name, number in largest.items()}
        num_computed += len(batch.token_ids)
        for name, amount in sums.items():
            totals[name] = totals.get(name, 0.0) + amount
    parts = [(model, optimizer, lr)] + ([] if critic is None else [(critic.module, critic.optimizer, critic.lr)])
    update = apply_together(parts, max_grad_norm=max_grad_norm)
    of_rank = totals | {COMPUTED: float(num_computed)} | update.totals
    totals, maxima = add_totals(of_rank, ranks), find_maxima(maxima, ranks)
    num_computed = int(totals.pop(COMPUTED))
    metrics |= describe_update(update, {name: totals.pop(name) for name in update.totals})
    seconds, num_tokens = time.perf_counter() - started, sum(len(s.token_ids) for s in samples)
    # (sum w)^2 / sum w^2 of the ratios of the whole step; divided by its number of tokens it is a share.
    effective = totals.pop(RATIOS) ** 2 / totals.pop(SQUARED_RATIOS)
    metrics["train/effective_share"] = Mean(effective, num_trained)
    for name, total in totals.items():
        is_whole = name in WEIGHTED or name.startswith("train/value_")
        metrics[name] = Mean(total * num_trained if is_whole else total, num_trained)
    return metrics | {
        **describe_extremes(maxima),
        "train/lr": Max(lr),
        "train/logprob_gap_max": Max(maxima[GAP]),
        "train/tokens": Sum(num_tokens),
        "train/computed_tokens": Sum(num_computed),
        "train/trained_tokens": Sum(num_trained),
        "train/tokens_per_s": Rate(num_tokens, seconds),
        "train/seconds": Sum(seconds),
    }


def _find_problem(loss: torch.Tensor, samples: Sequence[Sample]) -> str | None:
    """Return what is wrong with the loss of a micro-batch; None if it is finite."""
    if bool(torch.isfinite(loss)):
        return None
    origins = ", ".join(str(sample.origin.trajectory) for sample in samples[:3])
    return (
        f"the loss is {float(loss.detach())} in the micro-batch that starts with trajectories {origins}; the weights "
        "were not changed. Lower the learning rate or resume from the last checkpoint"
    )


def _ratio_sums(log_ratio: torch.Tensor) -> dict[str, float]:
    """Return the sums of the trainer-to-sampler ratios and of their squares, in float64; log-ratios are clamped to
    +-20."""
    ratio = log_ratio.double().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return {RATIOS: float(ratio.sum()), SQUARED_RATIOS: float(ratio.square().sum())}


def _forget(optimizer: torch.optim.Optimizer, critic: Critic | None) -> None:
    """Drop the gradients of a step that will not be taken."""
    optimizer.zero_grad(set_to_none=True)
    if critic is not None:
        critic.optimizer.zero_grad(set_to_none=True)


def _prepare(
    model: PreTrainedModel,
    samples: Sequence[Sample],
    loss: PolicyLoss,
    columns: TokenColumns,
    packing: Packing,
) -> tuple[dict[str, TokenColumn], dict[str, Metric]]:
    """Return the given columns and those of the whole step: `weights`, and for some losses `correction` and
    `selected`."""
    columns = dict(columns)
    metrics: dict[str, Metric] = {}
    behavior = torch.from_numpy(np.concatenate([s.behavior_logprobs[s.loss_mask] for s in samples]))
    sequence = torch.from_numpy(np.repeat(np.arange(len(samples)), [int(s.loss_mask.sum()) for s in samples]))
    old = behavior
    if "old_logprobs" in columns:
        old = torch.from_numpy(np.concatenate(list(columns["old_logprobs"])).astype(np.float64))
    kept = None
    if loss.correct is not None:
        correction = loss.correct(old, behavior, sequence)
        kept = correction.keep.numpy()
        columns["correction"] = split_column(correction.weights.numpy(), samples)
        metrics["train/correction_kept"] = Mean(float(kept.sum()), float(len(kept)))
        metrics["train/correction_weight"] = Mean(float(correction.weights.sum()), float(len(kept)))
    if loss.batch_rule:
        scores = score_logprobs(model, samples, loss.temperature, **packing)
        policy = torch.from_numpy(np.concatenate(scores))
        sampled = ~behavior.isnan()
        inputs = LossInputs(
            policy_logprobs=policy,
            old_logprobs=torch.where(sampled, old, policy),
            behavior_logprobs=torch.where(sampled, behavior, policy),
            advantages=torch.from_numpy(np.concatenate([s.advantages[s.loss_mask] for s in samples])),
            sequence=sequence,
        )
        # A loss with a batch rule reports a token as clipped exactly where its rule (or its clip, which has no
        # gradient) applies.
        columns["selected"] = split_column(loss.function(inputs).clipped.numpy(), samples)
    columns["weights"] = compute_sample_weights(
        samples, loss.aggregation, kept=kept, rejected=loss.rejected, constant=loss.constant
    )
    return columns, metrics


def _compute_loss(
    model: PreTrainedModel,
    batch: MicroBatch,
    loss: PolicyLoss,
    reference: PreTrainedModel | None,
    teacher: PreTrainedModel | None,
    critic: Critic | None,
) -> tuple[torch.Tensor, dict[str, float], dict[str, float]]:
    """Compute the micro-batch's share of the loss, and for the metrics token sums and maxima."""
    routing = replay_experts(batch)
    needs_whole = bool(loss.teacher_coefficient) and teacher is not None
    scores = compute_scores(
        model,
        batch,
        loss.temperature,
        entropy_gradient=loss.entropy_coefficient != 0,
        keeps_distribution=needs_whole,
        routing=routing,
    )
    policy, entropy = scores.logprobs, scores.entropy
    # An unmasked observation token was not sampled: it is on-policy by definition.
    sampled = ~batch.behavior_logprobs.isnan()
    behavior = torch.where(sampled, batch.behavior_logprobs, policy.detach())
    old = torch.where(sampled, batch.columns.get("old_logprobs", batch.behavior_logprobs), policy.detach())
    output = loss.function(
        LossInputs(
            policy_logprobs=policy,
            old_logprobs=old,
            behavior_logprobs=behavior,
            advantages=batch.advantages,
            sequence=batch.sequence,
            entropy=entropy.detach(),
            selected=batch.columns.get("selected"),
        )
    )
    weights = batch.columns["weights"]
    losses = output.losses * batch.columns["correction"] if "correction" in batch.columns else output.losses
    gap = (policy.detach() - behavior).abs()
    ratio_sums, largest = measure_ratios(policy.detach(), old, output.clipped)
    sums = {
        **ratio_sums,
        "train/policy_loss": float((weights * losses.detach()).sum()),
        "train/entropy": float(entropy.detach().sum()),
        "train/clip_fraction": float(output.clipped.sum()),
        "train/logprob_gap_mean": float(gap.sum()),
        "train/logprob_k3": float(compute_k3(behavior, policy.detach()).sum()),
        **_ratio_sums(policy.detach() - behavior),
    }
    sums |= {f"loss/{name}": float(values.sum()) for name, values in output.metrics.items()}
    if routing is not None:
        sums[MOVED] = float(routing.moved[batch.predict_at[batch.row]].sum())
    if loss.entropy_coefficient:
        losses = losses + compute_entropy_loss(entropy, coefficient=loss.entropy_coefficient)
    freely_routed = replace(batch, experts=None)
    if loss.kl_coefficient and reference is not None:
        with torch.no_grad():
            reference_logprobs, _ = compute_logprobs(reference, freely_routed, loss.temperature)
        kl = compute_kl(loss.kl_kind, policy, reference_logprobs, old_logprobs=old)
        losses = losses + loss.kl_coefficient * kl
        sums["train/kl_reference"] = float(kl.detach().sum())
    if scores.distribution is not None and teacher is not None:
        with torch.no_grad():
            target, _ = compute_distribution(teacher, freely_routed, loss.temperature)
        divergence = compute_reverse_kl_loss(scores.distribution, target)[batch.row]
        losses = losses + loss.teacher_coefficient * divergence
        sums["train/teacher_kl"] = float((weights * divergence.detach()).sum())
    total = (weights * losses).sum()
    if critic is not None:
        value_loss, value_sums = compute_micro_batch_value_loss(
            critic.head(scores.hidden)[batch.row, 0], batch, critic.clip
        )
        total = total + critic.coefficient * value_loss
        sums |= value_sums
    sums["train/loss"] = float(total.detach())
    return total, sums, largest | {GAP: float(gap.max()) if len(gap) else 0.0}
