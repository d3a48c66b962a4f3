"""Metrics as values that know how to merge: no average of averages, no maximum of means.

`METRICS` defines what Turnwise itself reports: kind, unit and text; words in capitals in a name stand for any name. Any
other name is a metric too, such as one measured by a user's test harness; `define` supplies a default definition.
"""

from __future__ import annotations

import math
import re
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
        """The mean of some numbers; for no numbers, its value is NaN."""
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


@dataclass(frozen=True, slots=True)
class Min:
    """A minimum."""

    value: float

    def merge(self, other: Min) -> Min:
        """The smaller of both."""
        return Min(min(self.value, other.value))


@dataclass(frozen=True, slots=True)
class Deviation:
    """A standard deviation of `count` numbers (divided by their count), with their `mean` and `squares`, the sum of
    squared distances to it."""

    count: float
    mean: float
    squares: float

    @staticmethod
    def of(values: Iterable[float]) -> Deviation:
        """The deviation of some numbers; for no numbers, its value is NaN."""
        numbers = list(values)
        mean = math.fsum(numbers) / len(numbers) if numbers else 0.0
        return Deviation(float(len(numbers)), mean, math.fsum((number - mean) ** 2 for number in numbers))

    def merge(self, other: Deviation) -> Deviation:
        """The deviation of both sets of numbers together."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        return Deviation(
            count,
            self.mean + apart * other.count / count,
            self.squares + other.squares + apart**2 * self.count * other.count / count,
        )

    @property
    def value(self) -> float:
        """NaN if there are no numbers."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan


@dataclass(frozen=True, slots=True)
class Quantile:
    """The smallest number that at least `share` of the numbers do not exceed."""

    numbers: tuple[float, ...]
    share: float = 0.95

    def merge(self, other: Quantile) -> Quantile:
        """The quantile of both sets of numbers together."""
        return Quantile((*self.numbers, *other.numbers), self.share)

    @property
    def value(self) -> float:
        """NaN if there are no numbers."""
        if not self.numbers:
            return math.nan
        place = max(1, math.ceil(self.share * len(self.numbers) - 1e-9))
        return sorted(self.numbers)[place - 1]


Metric = Mean | Sum | Max | Min | Rate | Deviation | Quantile


Kind = Literal["mean", "sum", "max", "min", "rate", "deviation", "quantile"]


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a metric."""

    kind: Kind
    unit: str
    text: str


METRICS: dict[str, Definition] = {
    "rollout/reward": Definition("mean", "reward", "Total reward over trajectories with a Scored reward."),
    "rollout/reward_std": Definition(
        "deviation", "reward", "Standard deviation of the total reward over trajectories with a Scored reward."
    ),
    "rollout/group_reward_std": Definition(
        "mean", "reward", "Standard deviation of the total reward within a group, mean over groups of two or more."
    ),
    "rollout/truth_order": Definition(
        "mean",
        "share",
        "Share of pairs of attempts at one task, one with more of the part `success` than the other (of a recipe with "
        "[rewards], and without this part: with more of the environment's reward), of which that one has the greater "
        "credited reward (equal rewards count half), mean over groups with such a pair; 1 for a reward that follows "
        "the truth, 0.5 for one that knows nothing of it. Absent in episodes of several roles.",
    ),
    "rollout/success": Definition("mean", "share", "Share of Scored trajectories whose `success` part is 1."),
    "rollout/tool_calls": Definition("mean", "calls", "Tool calls per trajectory."),
    "rollout/turns": Definition("mean", "turns", "Turns per trajectory."),
    "rollout/length_mean": Definition("mean", "tokens", "Sampled tokens per trajectory."),
    "rollout/length_p95": Definition("quantile", "tokens", "Sampled tokens that 95% of trajectories do not exceed."),
    "rollout/length_max": Definition("max", "tokens", "Sampled tokens of the longest trajectory."),
    "rollout/total_length_max": Definition(
        "max", "tokens", "Tokens of the longest trajectory, including prompt and observations."
    ),
    "rollout/sampled_tokens": Definition("sum", "tokens", "Tokens sampled by the engine."),
    "rollout/context_tokens": Definition("sum", "tokens", "Prompt and observation tokens appended to trajectories."),
    "rollout/tokens_per_s": Definition("rate", "tokens/s", "Sampled tokens per second of the rollout phase."),
    "rollout/truncated": Definition("mean", "share", "Share of trajectories ended by a limit."),
    "rollout/invalid": Definition("mean", "share", "Share of trajectories whose reward is Invalid after all retries."),
    "rollout/parse_errors": Definition("mean", "errors", "Malformed tool calls per trajectory."),
    "rollout/seconds": Definition("sum", "s", "Wall time of the rollout phase."),
    "rollout/groups": Definition("sum", "groups", "Groups rolled out, including those that dynamic sampling left out."),
    "rollout/kept_groups": Definition("sum", "groups", "Groups that dynamic sampling kept to train on."),
    "rollout/discarded_tokens": Definition(
        "sum", "tokens", "Tokens sampled for a group in attempts that are not among its members."
    ),
    "rollout/identical_groups": Definition(
        "mean", "share", "Share of groups of two or more whose members all sampled the same tokens."
    ),
    "credit/no_signal_groups": Definition(
        "mean", "share", "Share of groups in which every Scored member has the same reward."
    ),
    "loss/NAME": Definition("mean", "1", "A metric of your own loss, over trained tokens."),
    "credit/advantage_std": Definition(
        "deviation", "advantage", "Standard deviation of the advantage over trained tokens."
    ),
    "credit/advantage_min": Definition("min", "advantage", "Smallest advantage of a trained token."),
    "credit/advantage_max": Definition("max", "advantage", "Largest advantage of a trained token."),
    "tool/NAME_calls": Definition(
        "sum", "calls", "Calls of a tool; all calls of unknown names count as one tool, `unknown`."
    ),
    "tool/NAME_seconds": Definition("mean", "s", "Wall time per call of the tool."),
    "tool/NAME_errors": Definition("mean", "share", "Share of the tool's calls that failed."),
    "train/loss": Definition("mean", "nats", "Loss of the optimizer step, summed over its micro-batches."),
    "train/policy_loss": Definition("mean", "nats", "Policy-gradient part of the loss."),
    "train/kl_reference": Definition(
        "mean", "nats", "Mean estimate (loss.kl.kind) of KL(policy || reference) over trained tokens."
    ),
    "train/entropy": Definition("mean", "nats", "Mean entropy of the policy at trained tokens."),
    "train/clip_fraction": Definition(
        "mean", "share", "Share of trained tokens whose gradient the loss clipped, capped or selected."
    ),
    "train/clip_fraction_low": Definition(
        "mean", "share", "Share of trained tokens counted in train/clip_fraction whose ratio is below 1."
    ),
    "train/clip_fraction_high": Definition(
        "mean", "share", "Share of trained tokens counted in train/clip_fraction whose ratio is above 1."
    ),
    "train/kl_old": Definition(
        "mean", "nats", "Mean k3 estimate of KL(old || policy) over all updates; old is the denominator of the ratios."
    ),
    "train/ratio_min": Definition("min", "ratio", "Smallest ratio policy / old of a trained token, over all updates."),
    "train/ratio_max": Definition("max", "ratio", "Largest ratio policy / old of a trained token, over all updates."),
    "train/correction_kept": Definition(
        "mean", "share", "Share of trained tokens that the importance correction kept."
    ),
    "train/correction_weight": Definition(
        "mean", "weight", "Mean importance weight over trained tokens; dropped tokens count as 0."
    ),
    "train/teacher_kl": Definition("mean", "nats", "Exact KL(policy || teacher), aggregated like the loss."),
    "train/teacher_gap": Definition(
        "mean", "nats", "Mean sampler - teacher log-probability over sampled tokens, before the step."
    ),
    "train/value_loss": Definition("mean", "reward^2", "Loss of the critic, mean over the tokens it learns from."),
    "train/value_clip_fraction": Definition("mean", "share", "Share of those tokens whose value was clipped."),
    "train/value_explained_variance": Definition(
        "mean", "share", "1 - var(return - value) / var(return), before the step."
    ),
    "train/critic_seconds": Definition("sum", "s", "Wall time of the separate critic's optimizer steps."),
    "train/scoring_seconds": Definition(
        "sum", "s", "Wall time of forward passes before the step: values, old, reference, teacher."
    ),
    "train/implicit_loss": Definition(
        "mean",
        "nats",
        "Cross-entropy of the implicit reward model's predicted probability of success, before its step.",
    ),
    "train/implicit_accuracy": Definition(
        "mean", "share", "Share of attempts whose success it predicted correctly, before its step."
    ),
    "train/kept_trajectories": Definition("sum", "trajectories", "Trajectories that rejection sampling trained on."),
    "train/solved_tasks": Definition("sum", "tasks", "Tasks with at least one trajectory kept by rejection sampling."),
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
        "Share of trained tokens that the routers would have predicted with different experts than at sampling, in any "
        "layer, before the step.",
    ),
    "train/logprob_k3": Definition(
        "mean", "nats", "Mean k3 estimate of KL(sampler || trainer), same weights, before the step."
    ),
    "train/effective_share": Definition(
        "mean",
        "share",
        "Effective sample size of the ratios trainer / sampler divided by the number of tokens, before the step.",
    ),
    "train/staleness_mean": Definition(
        "mean",
        "versions",
        "Mean age of trained tokens: number of versions between the sampling and the trained weights.",
    ),
    "train/staleness_max": Definition("max", "versions", "Largest age of a trained token."),
    "train/age_AGE_share": Definition("mean", "share", "Share of trained tokens with this age in versions."),
    "train/changed_tensors": Definition("sum", "tensors", "Number of parameter tensors changed by the step's updates."),
    "train/changed_share": Definition(
        "mean",
        "share",
        "Share of the policy's weights with a gradient that an update changed, measured on float32 masters if there "
        "are any; from a sample.",
    ),
    "train/served_share": Definition(
        "mean",
        "share",
        "Share of those weights that an update changed in the model's own format (model.dtype), from which engines "
        "sample; less than `train/changed_share` where rounding undoes updates of the masters. Absent where there "
        "are no masters: in float32 and in ranks.",
    ),
    "train/relative_update": Definition(
        "mean",
        "ratio",
        "Length of an update divided by that of the policy's weights, both from a sample of the weights.",
    ),
    "train/skipped_updates": Definition(
        "sum", "updates", "Updates that changed nothing because float16 gradients overflowed; the loss scale is halved."
    ),
    "train/skipped_steps": Definition(
        "sum", "steps", "Steps in which one of several learners had nothing to train, and kept its weights."
    ),
    "train/tokens": Definition("sum", "tokens", "Tokens of the trajectories that train, including context."),
    "train/computed_tokens": Definition(
        "sum", "tokens", "Tokens run forward and backward; a shared prefix counts once."
    ),
    "train/trained_tokens": Definition("sum", "tokens", "Tokens that contribute to the loss."),
    "train/tokens_per_s": Definition("rate", "tokens/s", "`train/tokens` per second of the training phase."),
    "train/flops_per_s": Definition(
        "rate",
        "FLOP/s",
        "Floating-point operations of forward and backward passes per second, from the model's sizes, over all ranks.",
    ),
    "train/mfu": Definition(
        "rate", "share", "The same as a share of the GPUs' bfloat16 peak; absent on CPUs, in float32, on unknown GPUs."
    ),
    "train/gpu_memory_gib": Definition(
        "max", "GiB", "Peak GPU memory allocated by torch in a training process since the previous step."
    ),
    "train/seconds": Definition("sum", "s", "Wall time of the training phase."),
    "cpt/loss": Definition("mean", "nats", "Mean cross-entropy per token of documents."),
    "cpt/tokens": Definition("sum", "tokens", "Tokens of documents that trained, as the trainer counts them."),
    "cpt/lr": Definition("max", "1", "Learning rate of the step."),
    "cpt/seconds": Definition("sum", "s", "Wall time of the step on documents."),
    "sft/loss": Definition("mean", "nats", "Mean cross-entropy per trained token."),
    "sft/heldout_loss": Definition("mean", "nats", "Mean cross-entropy per token of replies in sft.heldout_path."),
    "sft/seconds": Definition("sum", "s", "Wall time of the supervised step."),
    "schedule/trainer_idle_seconds": Definition("sum", "s", "Time the trainer waited for the groups of the step."),
    "schedule/engine_idle_seconds": Definition(
        "sum", "s", "Time without an open request, from the end of the previous step to the publication of this one."
    ),
    "schedule/seconds": Definition(
        "sum", "s", "Time since the last step's metrics; the following metrics add up to it."
    ),
    "schedule/engine_sampling_seconds": Definition("sum", "s", "Engine: at least one request open."),
    "schedule/engine_tools_seconds": Definition("sum", "s", "Engine idle: members wait for their environments."),
    "schedule/engine_annotators_seconds": Definition("sum", "s", "Engine idle: groups wait for annotators or disk."),
    "schedule/engine_admission_seconds": Definition("sum", "s", "Engine idle: no group is open, and none may open."),
    "schedule/trainer_training_seconds": Definition("sum", "s", "Trainer: a step, including scoring and accounting."),
    "schedule/trainer_publishing_seconds": Definition("sum", "s", "Trainer: sending weights to engines."),
    "schedule/trainer_after_step_seconds": Definition("sum", "s", "Trainer: checkpoints, evaluations, parity gates."),
    "schedule/trainer_unfinished_seconds": Definition("sum", "s", "Trainer idle: too few groups have finished."),
    "schedule/trainer_deadline_seconds": Definition("sum", "s", "Trainer idle: a late group must train first."),
    "schedule/publish_seconds": Definition("sum", "s", "Time until every engine had the step's weights."),
    "schedule/restarted_tokens": Definition("sum", "tokens", "Sampled tokens of replies that new weights restarted."),
    "processes/lost": Definition(
        "sum",
        "processes",
        "Rollout processes, engine workers and ranks that ended unexpectedly since the previous step.",
    ),
    "schedule/outstanding_groups": Definition("sum", "groups", "Groups open or waiting after the publication."),
    "schedule/checkpoint_seconds": Definition(
        "sum", "s", "Time spent writing checkpoints since the last step's metrics; absent if none was written."
    ),
    "schedule/evaluate_seconds": Definition(
        "sum",
        "s",
        "Time training waited for held-out evaluations since the last step's metrics; absent if none were due.",
    ),
    "schedule/open_requests_mean": Definition(
        "mean", "requests", "Open requests, averaged over time; those above engine.max_concurrency wait in the queue."
    ),
    "schedule/open_requests_max": Definition("max", "requests", "Maximum number of open requests."),
    "schedule/computed_tokens": Definition("sum", "tokens", "Tokens that the engine ran through the model."),
    "schedule/reused_share": Definition(
        "mean", "share", "Share of the tokens needed by requests that were found in the cache."
    ),
    "schedule/preemptions": Definition("sum", "requests", "Requests that gave up their cache pages for others."),
    "schedule/evicted_pages": Definition("sum", "pages", "Cache pages that were evicted for others."),
    "schedule/held_pages": Definition("mean", "pages", "Cache pages in use by requests when the metrics were taken."),
    "rollout/encode_s": Definition("sum", "s", "Time in which the vision tower encoded pictures."),
    "rollout/encode_share": Definition("mean", "share", "Share of that time in the engine's computing time."),
    "rollout/encoded_pictures": Definition("sum", "pictures", "Pictures that the vision tower encoded."),
    "rollout/reused_pictures": Definition(
        "mean", "share", "Share of the pictures needed by engine steps whose features were known."
    ),
    "rollout/image_places": Definition("sum", "tokens", "Computed prompt tokens that stand for pictures."),
    "annotate/NAME_seconds": Definition("sum", "s", "Time of an annotator, summed over groups."),
    "dropped/REASON": Definition("sum", "tokens", "Sampled tokens of the step that are not trained, for this reason."),
    "term/NAME_contribution": Definition("mean", "reward", "What it adds to the reward that trains: weighted, capped."),
    "term/NAME": Definition("mean", "reward", "Value of an entry of the recipe's [rewards], over scored trajectories."),
    "reward/PART": Definition("mean", "reward", "A part of the reward, over trajectories with a Scored reward."),
    "signal/gateway_continued": Definition(
        "mean", "share", "Share of an agent's requests that continued a reply on stored tokens."
    ),
    "signal/gateway_branched": Definition(
        "mean", "share", "Share of an agent's requests that were answered beside another reply, on stored tokens."
    ),
    "signal/gateway_rewritten": Definition(
        "mean", "share", "Share of an agent's requests whose earlier messages were not those received and delivered."
    ),
    "signal/gateway_reason_REASON": Definition(
        "mean", "share", "Share of an agent's requests that were rewritten for this reason."
    ),
    "signal/gateway_reasoning_dropped": Definition(
        "mean", "share", "Share of an agent's requests that left out a reply's reasoning."
    ),
    "curriculum/unscored_groups": Definition(
        "sum", "groups", "Groups of which no attempt was scored; they tell a sampler nothing."
    ),
    "curriculum/kinds": Definition("mean", "kinds", "Kinds of tasks in a step; more than 20 have no metrics each."),
    "curriculum/pool_share_POOL": Definition(
        "mean", "share", "Share of a step's groups, dropped ones included, that were drawn from the pool."
    ),
    "curriculum/pool_reward_POOL": Definition(
        "mean", "reward", "Their mean reward, as curriculum.metric says, over groups with a scored attempt."
    ),
    "curriculum/kind_share_KIND": Definition("mean", "share", "Share of a step's groups that are of the kind."),
    "curriculum/kind_reward_KIND": Definition("mean", "reward", "Their mean reward, as that of a pool."),
    "curriculum/tasks_POOL": Definition("mean", "tasks", "Tasks that the sampler remembers in the pool."),
    "curriculum/chance_KIND": Definition("mean", "share", "Chance with which the sampler draws the kind next."),
    "curriculum/score": Definition("mean", "reward", "Mean score of the archive of the sampler plr."),
    "signal/gateway_queue_seconds": Definition(
        "mean", "s", "Time that a reply to an agent waited for others of its session."
    ),
    "signal/gateway_first_token_seconds": Definition(
        "mean", "s", "Time from an agent's request to the first token of its reply."
    ),
    "signal/NAME": Definition(
        "mean", "1", "A number that the environment attached to turns, averaged over these turns."
    ),
    "judge/NAME_questions": Definition("sum", "questions", "Questions that the step's episodes asked this judge."),
    "judge/NAME_cached": Definition("sum", "questions", "Those answered by the verdict on an equal question."),
    "judge/NAME_failures": Definition("sum", "attempts", "Attempts at a verdict that gave none."),
    "judge/NAME_unanswered": Definition("sum", "questions", "Questions without a verdict after all repetitions."),
    "judge/NAME_prompt_tokens": Definition("sum", "tokens", "Prompt tokens of the judge; 0 if unreported."),
    "judge/NAME_reply_tokens": Definition("sum", "tokens", "Reply tokens of the judge; 0 if unreported."),
    "judge/NAME_cost": Definition("sum", "money", "What these tokens cost, by the prices in judges.NAME."),
    "judge/NAME_seconds": Definition(
        "mean", "s", "Time from a question to its verdict, without the wait for a free place; cached ones do not count."
    ),
    "judge/NAME_score": Definition("mean", "score", "Score of a verdict."),
    "judge/NAME_agreement": Definition(
        "mean", "share", "Share of questions with a known truth where it and the score are on the same side of 0.5."
    ),
    "judge/NAME_excess": Definition("mean", "score", "Score minus truth, over questions with a known truth."),
    "evaluate/success": Definition("mean", "share", "Share of attempts at held-out tasks that succeed."),
    "evaluate/pass_at_samples": Definition(
        "mean", "share", "Share of held-out tasks solved by at least one of evaluate.samples attempts."
    ),
    "evaluate/tool_calls": Definition("mean", "calls", "Tool calls per held-out task."),
    "evaluate/reward": Definition("mean", "reward", "Total reward on held-out tasks."),
    "evaluate/on_NAME_success": Definition(
        "mean", "share", "Share of attempts that succeed at the held-out tasks of a set: selection, or evaluate.sets."
    ),
    "evaluate/reward_PART": Definition("mean", "reward", "A part of the reward on held-out tasks."),
}


_KINDS: dict[type[Metric], Kind] = {
    Mean: "mean",
    Sum: "sum",
    Max: "max",
    Min: "min",
    Rate: "rate",
    Deviation: "deviation",
    Quantile: "quantile",
}


def define(name: str, metric: Metric | None = None) -> Definition:
    """Return a metric's definition: its row in `METRICS`, or by default a number without a unit, of the same kind as
    `metric`.

    Without a `metric` the default kind is a mean.
    """
    kind = "mean" if metric is None else _KINDS[type(metric)]
    return find_definition(name) or Definition(kind, "", name)


def find_definition(name: str) -> Definition | None:
    """Return the row of `METRICS` for a name: the name itself, the name with words in capitals ("reward/success" under
    "reward/PART"), or the name without a learner's prefix; None if there is no row."""
    if name in METRICS:
        return METRICS[name]
    for pattern, definition in METRICS.items():
        if re.fullmatch(re.sub(r"[A-Z]+", ".+", re.escape(pattern)), name):
            return definition
    learner, _, rest = name.partition("/")
    return find_definition(rest) if learner and "/" in rest else None


def find_definitions(word: str) -> dict[str, Definition]:
    """Return the rows of `METRICS` that match a word: the metric with this name, else those with the word in the name,
    else those with it in the text."""
    exact = find_definition(word)
    if exact is not None:
        return {word: exact}
    folded = word.casefold()
    named = {name: row for name, row in METRICS.items() if folded in name.casefold()}
    return named or {name: row for name, row in METRICS.items() if folded in row.text.casefold()}


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
            raise TypeError(f"metric {name!r} is both {type(merged[name]).__name__} and {type(metric).__name__}")
        else:
            merged[name] = merged[name].merge(metric)  # type: ignore[arg-type]
    return merged
