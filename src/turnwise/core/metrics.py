"""Metrics as values that know how to merge: no average of averages, no maximum of means.

`METRICS` defines what Turnwise itself reports: kind, unit and text. Any other name is a metric too, such as a part of
an environment's reward or a statistic of an engine; `define` gives it a default definition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Mean:
    """A weighted mean: `total / weight`."""

    total: float
    weight: float = 1.0

    @staticmethod
    def of(values: Iterable[float]) -> Mean:
        """The mean of some numbers; of none, its value is NaN."""
        numbers = list(values)
        return Mean(math.fsum(numbers), float(len(numbers)))

    def merge(self, other: Mean) -> Mean:
        """The mean over both."""
        return Mean(self.total + other.total, self.weight + other.weight)

    @property
    def value(self) -> float:
        """NaN when nothing was recorded."""
        return self.total / self.weight if self.weight else math.nan


@dataclass(frozen=True, slots=True)
class Sum:
    """A total."""

    value: float

    def merge(self, other: Sum) -> Sum:
        """The total of both."""
        return Sum(self.value + other.value)


@dataclass(frozen=True, slots=True)
class Max:
    """A maximum."""

    value: float

    def merge(self, other: Max) -> Max:
        """The larger of both."""
        return Max(max(self.value, other.value))


@dataclass(frozen=True, slots=True)
class Rate:
    """An amount per second: `amount / seconds`."""

    amount: float
    seconds: float

    def merge(self, other: Rate) -> Rate:
        """Amounts and seconds add up."""
        return Rate(self.amount + other.amount, self.seconds + other.seconds)

    @property
    def value(self) -> float:
        """NaN when no time passed."""
        return self.amount / self.seconds if self.seconds > 0 else math.nan


Metric = Mean | Sum | Max | Rate


@dataclass(frozen=True, slots=True)
class Definition:
    """What a metric is."""

    kind: Literal["mean", "sum", "max", "rate"]
    unit: str
    text: str


METRICS: dict[str, Definition] = {
    "rollout/reward": Definition("mean", "reward", "Total reward over trajectories with a Scored reward."),
    "rollout/success": Definition("mean", "share", "Share of Scored trajectories whose `success` part is 1."),
    "rollout/tool_calls": Definition("mean", "calls", "Tool calls per trajectory."),
    "rollout/turns": Definition("mean", "turns", "Turns per trajectory."),
    "rollout/sampled_tokens": Definition("sum", "tokens", "Tokens sampled by the engine."),
    "rollout/context_tokens": Definition("sum", "tokens", "Prompt and observation tokens appended to trajectories."),
    "rollout/tokens_per_s": Definition("rate", "tokens/s", "Sampled tokens per second of the rollout phase."),
    "rollout/truncated": Definition("mean", "share", "Share of trajectories that a limit ended."),
    "rollout/invalid": Definition("mean", "share", "Share of trajectories whose reward is Invalid after all retries."),
    "rollout/parse_errors": Definition("mean", "errors", "Malformed tool calls per trajectory."),
    "rollout/seconds": Definition("sum", "s", "Wall time of the rollout phase."),
    "rollout/groups": Definition("sum", "groups", "Groups rolled out, those that dynamic sampling left out included."),
    "rollout/kept_groups": Definition("sum", "groups", "Groups that dynamic sampling kept to train on."),
    "rollout/discarded_tokens": Definition(
        "sum", "tokens", "Tokens sampled for a group by attempts that are no members of it."
    ),
    "rollout/identical_groups": Definition(
        "mean", "share", "Share of groups of two or more whose members all sampled the same tokens."
    ),
    "credit/no_signal_groups": Definition(
        "mean", "share", "Share of groups in which every Scored member has the same reward."
    ),
    "train/loss": Definition("mean", "nats", "Loss of the optimizer step, summed over its micro-batches."),
    "train/policy_loss": Definition("mean", "nats", "Policy-gradient part of the loss."),
    "train/kl_reference": Definition(
        "mean", "nats", "Mean estimate (loss.kl.kind) of KL(policy || reference) over trained tokens."
    ),
    "train/entropy": Definition("mean", "nats", "Mean entropy of the policy at trained tokens."),
    "train/clip_fraction": Definition(
        "mean", "share", "Share of trained tokens whose gradient the loss clipped, capped or singled out."
    ),
    "train/correction_kept": Definition(
        "mean", "share", "Share of trained tokens that the importance correction kept."
    ),
    "train/correction_weight": Definition(
        "mean", "weight", "Mean importance weight over trained tokens, 0 where one was dropped."
    ),
    "train/teacher_kl": Definition("mean", "nats", "Exact KL(policy || teacher), aggregated as the loss."),
    "train/teacher_gap": Definition(
        "mean", "nats", "Mean sampler - teacher log-probability over sampled tokens, before the step."
    ),
    "train/value_loss": Definition("mean", "reward^2", "Loss of the critic, mean over the tokens it learns from."),
    "train/value_clip_fraction": Definition("mean", "share", "Share of those tokens whose value the clip held."),
    "train/value_explained_variance": Definition(
        "mean", "share", "1 - var(return - value) / var(return), before the step."
    ),
    "train/critic_seconds": Definition("sum", "s", "Wall time of the separate critic's optimizer steps."),
    "train/scoring_seconds": Definition(
        "sum", "s", "Wall time of forward passes before the step: values, old, reference, teacher."
    ),
    "train/implicit_loss": Definition(
        "mean", "nats", "Cross-entropy of the implicit reward model's chance of success, before its step."
    ),
    "train/implicit_accuracy": Definition(
        "mean", "share", "Share of attempts whose success it guessed right, before its step."
    ),
    "train/kept_trajectories": Definition("sum", "trajectories", "Trajectories that rejection sampling trained on."),
    "train/solved_tasks": Definition("sum", "tasks", "Tasks of which rejection sampling kept a trajectory."),
    "train/pairs": Definition("sum", "pairs", "Preference pairs trained on."),
    "train/pair_accuracy": Definition(
        "mean", "share", "Share of pairs whose chosen side has the higher implicit reward."
    ),
    "train/pair_margin": Definition("mean", "reward", "Mean implicit reward of the chosen minus the rejected side."),
    "train/grad_norm": Definition("mean", "norm", "Global gradient norm before clipping."),
    "train/lr": Definition("max", "1", "Learning rate of the step."),
    "train/logprob_gap_mean": Definition(
        "mean", "nats", "Mean |trainer - sampler| log-probability, same weights, before the step."
    ),
    "train/logprob_gap_max": Definition("max", "nats", "Largest |trainer - sampler| log-probability, before the step."),
    "train/moved_experts": Definition(
        "mean",
        "share",
        "Share of trained tokens that the routers would have predicted with other experts than at sampling, in any "
        "layer, before the step.",
    ),
    "train/logprob_k3": Definition(
        "mean", "nats", "Mean k3 estimate of KL(sampler || trainer), same weights, before the step."
    ),
    "train/effective_share": Definition(
        "mean",
        "share",
        "Effective sample size of the ratios trainer / sampler over the number of tokens, before the step.",
    ),
    "train/staleness_mean": Definition(
        "mean", "versions", "Mean age of trained tokens: versions between the weights that sampled and those trained."
    ),
    "train/staleness_max": Definition("max", "versions", "Largest age of a trained token."),
    "train/changed_tensors": Definition("sum", "tensors", "Parameter tensors that the step's updates changed."),
    "train/changed_share": Definition(
        "mean",
        "share",
        "Share of the policy's weights with a gradient that an update changed, of float32 masters where it has them; "
        "from a sample.",
    ),
    "train/skipped_updates": Definition(
        "sum", "updates", "Updates that changed nothing because float16 gradients overflowed; the loss scale is halved."
    ),
    "train/tokens": Definition("sum", "tokens", "Tokens of the trajectories that train, context included."),
    "train/computed_tokens": Definition(
        "sum", "tokens", "Tokens run forward and backward: a prefix that several share counts once."
    ),
    "train/trained_tokens": Definition("sum", "tokens", "Tokens that carry loss."),
    "train/tokens_per_s": Definition("rate", "tokens/s", "`train/tokens` per second of the training phase."),
    "train/seconds": Definition("sum", "s", "Wall time of the training phase."),
    "sft/loss": Definition("mean", "nats", "Mean cross-entropy per trained token."),
    "sft/heldout_loss": Definition("mean", "nats", "Mean cross-entropy per token of replies in sft.heldout_path."),
    "sft/seconds": Definition("sum", "s", "Wall time of the supervised step."),
    "schedule/trainer_idle_seconds": Definition("sum", "s", "Time the trainer waited for the groups of the step."),
    "schedule/engine_idle_seconds": Definition(
        "sum", "s", "Time without an open request, from the end of the step before to the publication of this one."
    ),
    "schedule/seconds": Definition("sum", "s", "Time since the last step's metrics; the following add up to it."),
    "schedule/engine_sampling_seconds": Definition("sum", "s", "Engine: at least one request open."),
    "schedule/engine_tools_seconds": Definition("sum", "s", "Engine idle: members wait for their environments."),
    "schedule/engine_annotators_seconds": Definition("sum", "s", "Engine idle: groups wait for annotators or disk."),
    "schedule/engine_admission_seconds": Definition("sum", "s", "Engine idle: no group is open, and none may open."),
    "schedule/trainer_training_seconds": Definition("sum", "s", "Trainer: a step, its scoring and its account."),
    "schedule/trainer_publishing_seconds": Definition("sum", "s", "Trainer: weights on their way to engines."),
    "schedule/trainer_after_step_seconds": Definition("sum", "s", "Trainer: checkpoints, evaluations, parity gates."),
    "schedule/trainer_unfinished_seconds": Definition("sum", "s", "Trainer idle: too few groups have finished."),
    "schedule/trainer_deadline_seconds": Definition("sum", "s", "Trainer idle: a late group must train first."),
    "schedule/publish_seconds": Definition("sum", "s", "Time until every engine held the step's weights."),
    "schedule/restarted_tokens": Definition("sum", "tokens", "Sampled tokens of replies that new weights restarted."),
    "processes/lost": Definition(
        "sum", "processes", "Rollout processes, engine workers and ranks that ended unasked since the step before."
    ),
    "schedule/outstanding_groups": Definition("sum", "groups", "Groups open or waiting after the publication."),
    "evaluate/success": Definition("mean", "share", "Share of attempts at held-out tasks that succeed."),
    "evaluate/pass_at_samples": Definition(
        "mean", "share", "Share of held-out tasks that one of evaluate.samples attempts solves."
    ),
    "evaluate/tool_calls": Definition("mean", "calls", "Tool calls per held-out task."),
}


_KINDS: dict[type[Metric], Literal["mean", "sum", "max", "rate"]] = {
    Mean: "mean",
    Sum: "sum",
    Max: "max",
    Rate: "rate",
}


def define(name: str, metric: Metric | None = None) -> Definition:
    """What a metric is: its row in `METRICS`, or by default a number without a unit whose kind is that of `metric`.

    Without a `metric` the default kind is a mean.
    """
    kind = "mean" if metric is None else _KINDS[type(metric)]
    return METRICS.get(name) or Definition(kind, "", name)


def record(values: Mapping[str, Metric]) -> dict[str, float]:
    """Plain numbers for the metrics file; any name is allowed (see `define`)."""
    return {name: metric.value for name, metric in values.items()}


def merge(a: Mapping[str, Metric], b: Mapping[str, Metric]) -> dict[str, Metric]:
    """Merge two sets of metrics name by name. Raises TypeError when one name has two kinds."""
    merged = dict(a)
    for name, metric in b.items():
        if name not in merged:
            merged[name] = metric
        elif type(merged[name]) is not type(metric):
            raise TypeError(f"metric {name!r} is {type(merged[name]).__name__} and {type(metric).__name__}")
        else:
            merged[name] = merged[name].merge(metric)  # type: ignore[arg-type]
    return merged
