"""Reinforcement learning: turns groups and model scores into credit, and credit into a training batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

import numpy as np

from turnwise.algorithms.advantages import has_signal
from turnwise.algorithms.credit import CreditTrajectory, TokenField
from turnwise.algorithms.credit_checks import CheckedCredit
from turnwise.algorithms.preference.distillation import compute_distillation_advantages
from turnwise.batching.samples import (
    find_trained_turns,
    from_turns,
    take_scored,
    to_samples,
    to_turns,
    unmask_observations,
)
from turnwise.config.credit import ShapingSection
from turnwise.config.loss import LossSection
from turnwise.core.batch import Assignment, Column, Columns, NothingToTrain, StepReport, TrainingBatch, Wanted
from turnwise.core.errors import TrainingError, boundary
from turnwise.core.metrics import Deviation, Max, Mean, Metric, Min
from turnwise.core.paths import unfold_groups
from turnwise.core.sampled import training_logprobs
from turnwise.core.types import DropReason, Trajectory, TrajectoryGroup, TrajectoryId, to_floats
from turnwise.credit.assignment import (
    TurnArrays,
    add_kl_penalty,
    compute_advantages,
    list_paths,
    pad_turns,
    to_credit_trajectories,
)
from turnwise.learning.adaptive import Coefficients, adapt_coefficients, adapts, start_coefficients
from turnwise.learning.drops import list_drops, list_extra_members, list_truncated
from turnwise.learning.returns import compute_explained_variance, compute_returns
from turnwise.learning.staleness import compute_staleness_metrics
from turnwise.learning.updates import split_epochs

COEFFICIENTS = "coefficients"
"""Key of the adaptive coefficients in the learner's state."""

Attempts = Mapping[TrajectoryId, Trajectory]
"""Scored trajectories in the order of the groups, without turns that never train."""
ByTurn = Mapping[str, Mapping[TrajectoryId, TurnArrays]]
"""Columns per turn of every attempt, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSettings:
    """A recipe's options for learning by policy gradients."""

    build_credit: Callable[[float], CheckedCredit]
    """Builds the credit method, whose function may keep state, for a coefficient of the KL penalty in the reward."""
    credit_options: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's options for the credit method."""
    loss: LossSection
    shaping: ShapingSection
    has_critic: bool = False
    recompute_old: bool = False
    """Whether the trainer computes the log-probabilities to which ratios are taken."""
    train_truncated: bool = True
    train_members: int = 0
    seed: int
    """Seed with which samples are dealt to updates."""


class PolicyGradientLearner:
    """Learns by `credit`, `critic` and `loss`. Implements `Learner`."""

    def __init__(self, settings: GradientSettings) -> None:
        self.settings = settings
        self.coefficients = start_coefficients(settings.loss)
        self.credit = self._build_credit()
        self.wanted = self._list_wanted()
        self._metrics: Mapping[str, Metric] = {}
        self._num_samples = 0

    @property
    def penalty(self) -> float:
        """The present coefficient of the KL penalty in the reward; 0 without a penalty."""
        return self.coefficients.kl if self.settings.loss.kl.place == "reward" else 0.0

    def _build_credit(self) -> CheckedCredit:
        return self.settings.build_credit(self.penalty)

    def _list_wanted(self) -> frozenset[Wanted]:
        needs, teacher = self.credit.method.needs, self.settings.loss.teacher
        learns_rewards = "implicit_rewards" in needs
        asked: dict[Wanted, bool] = {
            "values": self.settings.has_critic,
            "old_logprobs": self.settings.recompute_old,
            "reference_logprobs": self.penalty > 0 or learns_rewards,
            "teacher_logprobs": bool(teacher.path) and teacher.kind == "sampled",
            "implicit_rewards": learns_rewards,
            "squared_mass": "squared_mass" in needs,
        }
        return frozenset(name for name, needed in asked.items() if needed)

    def assign(self, groups: Sequence[TrajectoryGroup], columns: Columns, step: int) -> Assignment:
        """See `Learner.assign`. A batch without groups, or in which limits ended every trajectory, has no updates.

        Raises TrainingError if credit fails, NothingToTrain if no trajectory has a token that may train.
        """
        settings, loss = self.settings, self.settings.loss
        if not groups:
            return Assignment(
                batch=TrainingBatch(step=step, objective="policy_gradient", samples=()), drops=(), advantages={}
            )
        attempts = take_scored(groups)
        metrics: dict[str, Metric] = {
            "credit/no_signal_groups": Mean.of(
                float(not has_signal(group.credited_rewards())) for group in unfold_groups(groups, estimates=True)
            )
        }
        advantages, returns = self._credit(groups, attempts, columns, metrics)
        left_out = list_truncated(groups, train_truncated=settings.train_truncated)
        left_out |= list_extra_members(groups, train_members=settings.train_members)
        advantages = {name: advantages[name] for name in attempts if name in advantages and name not in left_out}
        samples = [sample for name, credit in advantages.items() for sample in to_samples(attempts[name], credit)]
        trained = columns.select([index for index, name in enumerate(_list_owners(attempts)) if name in advantages])
        kept = Columns(old_logprobs=trained.old_logprobs)
        if trained.values is not None:
            targets = tuple(array for name in advantages for array in from_turns(attempts[name], returns[name]))
            kept = replace(kept, values=trained.values, returns=targets)
            metrics["train/value_explained_variance"] = Mean(compute_explained_variance(trained.values, targets))
        if not loss.mask_observations:
            samples = unmask_observations(samples)
        metrics |= compute_staleness_metrics(samples, version=step - 1) | compute_advantage_metrics(advantages)
        self._metrics, self._num_samples = metrics, len(samples)
        whole = {t.id: t for group in groups for t in group.trajectories}
        moves = adapts(loss)
        made = Assignment(
            batch=TrainingBatch(
                step=step,
                objective="policy_gradient",
                samples=tuple(samples),
                columns=kept,
                updates=split_epochs(len(samples), loss.updates_per_step, loss.epochs, settings.seed, step),
                kl_coefficient=self.coefficients.kl if moves and loss.kl.place == "loss" else None,
                entropy_coefficient=self.coefficients.entropy if moves else None,
            ),
            drops=tuple(list_drops(groups, advantages, DropReason.NO_CREDIT, other_reasons=left_out)),
            advantages={
                name: [None if array is None else to_floats(array) for array in pad_turns(credit, whole[name])]
                for name, credit in advantages.items()
            },
            metrics=metrics,
        )
        if not samples and not left_out:
            what = "has no sampled token" if attempts else "is invalid"
            raise NothingToTrain(
                f"no token to train on: every trajectory of the batch {what}; look at the failures in the run folder",
                made,
            )
        return made

    def follow(self, report: StepReport) -> None:
        """Adapt the coefficients to what the step measured."""
        loss = self.settings.loss
        if adapts(loss) and self._num_samples:
            measured = {**self._metrics, **report.metrics}
            self._set(adapt_coefficients(self.coefficients, loss, measured, num_samples=self._num_samples))

    def state_dict(self) -> dict[str, object]:
        """Return the credit method's state and the adaptive coefficients."""
        state = self.credit.state_dict()
        return state | {COEFFICIENTS: self.coefficients.to_json()} if adapts(self.settings.loss) else state

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the credit method's state and the adaptive coefficients."""
        memory = dict(state)
        coefficients = memory.pop(COEFFICIENTS, None)
        if isinstance(coefficients, Mapping):
            self._set(Coefficients(kl=coefficients["kl"], entropy=coefficients["entropy"]))
        with boundary(TrainingError, f"the checkpoint's memory of credit.method={self.credit.method.name!r}"):
            self.credit.load_state_dict(memory)

    def _set(self, coefficients: Coefficients) -> None:
        """Continue with these coefficients."""
        self.coefficients = coefficients
        if self.penalty > 0 and self.credit.method.takes_token_penalty:
            self.credit = self._build_credit()

    def _credit(
        self, groups: Sequence[TrajectoryGroup], attempts: Attempts, columns: Columns, metrics: dict[str, Metric]
    ) -> tuple[dict[TrajectoryId, TurnArrays], dict[TrajectoryId, TurnArrays]]:
        """Compute advantages per turn, and returns for the critic (empty without one)."""
        method, penalty = self.credit.method, self.penalty
        by_turn = _to_turn_columns(attempts, columns)
        token_fields: dict[TokenField, Mapping[TrajectoryId, TurnArrays]] = {
            name: by_turn[name] for name in get_args(TokenField) if name in by_turn
        }
        finals = columns.final_values
        trajectories = to_credit_trajectories(
            groups,
            shaping=self.settings.shaping,
            scores=token_fields,
            final_values=None if finals is None else dict(zip(_list_owners(attempts), finals, strict=True)),
        )
        advantages = compute_advantages(self.credit, groups, trajectories)
        first_paths: dict[TrajectoryId, CreditTrajectory] = {
            name: seen
            for (name, path), seen in zip(list_paths(groups), trajectories, strict=True)
            if path.kind == "first"
        }
        returns: dict[TrajectoryId, TurnArrays] = {}
        if columns.values is not None:
            options = {**method.defaults, **self.settings.credit_options}
            if penalty > 0 and method.takes_token_penalty:
                options["kl_coefficient"] = penalty
            returns = {name: compute_returns(method, options, first_paths[name]) for name in advantages}
        if penalty > 0:
            metrics["train/kl_reference"] = _mean_gap(attempts, by_turn["reference_logprobs"])
            if not method.takes_token_penalty:
                advantages = {
                    name: add_kl_penalty(credit, first_paths[name], penalty) for name, credit in advantages.items()
                }
        return self._add_teacher(advantages, attempts, by_turn, metrics), returns

    def _add_teacher(
        self,
        advantages: dict[TrajectoryId, TurnArrays],
        attempts: Attempts,
        by_turn: ByTurn,
        metrics: dict[str, Metric],
    ) -> dict[TrajectoryId, TurnArrays]:
        """Add the teacher's part to the advantages, or replace them by it."""
        teacher = self.settings.loss.teacher
        if teacher.path and teacher.replace_credit:
            advantages = {name: [np.zeros_like(array) for array in credit] for name, credit in advantages.items()}
        scores = by_turn.get("teacher_logprobs")
        if scores is None:
            return advantages
        metrics["train/teacher_gap"] = _mean_gap(attempts, scores)
        with boundary(TrainingError, "loss.teacher"):
            return {
                name: [
                    array
                    + compute_distillation_advantages(
                        training_logprobs(turn.completion), scored, coefficient=teacher.coefficient
                    )
                    for array, turn, scored in zip(credit, attempts[name].turns, scores[name], strict=True)
                ]
                for name, credit in advantages.items()
            }


def compute_advantage_metrics(advantages: Mapping[TrajectoryId, TurnArrays]) -> dict[str, Metric]:
    """Return deviation, minimum and maximum of the advantages of trained sampled tokens; absent without one."""
    numbers = np.concatenate([np.zeros(0), *(array for turns in advantages.values() for array in turns)])
    if not len(numbers):
        return {}
    mean = float(numbers.mean())
    squares = float(((numbers - mean) ** 2).sum())
    return {
        "credit/advantage_std": Deviation(float(len(numbers)), mean, squares),
        "credit/advantage_min": Min(float(numbers.min())),
        "credit/advantage_max": Max(float(numbers.max())),
    }


def _list_owners(attempts: Attempts) -> list[TrajectoryId]:
    """Return the trajectory of every sample of `list_samples`."""
    return [name for name, attempt in attempts.items() for turns in find_trained_turns(attempt) if turns]


def _to_turn_columns(attempts: Attempts, columns: Columns) -> dict[str, dict[TrajectoryId, TurnArrays]]:
    """Return every given column as one array per turn of every attempt."""
    owners = _list_owners(attempts)
    by_name = {}
    for each in fields(Columns):
        column: Column | None = getattr(columns, each.name)
        if column is None or each.name == "final_values":
            continue
        parts: dict[TrajectoryId, list[np.ndarray]] = {name: [] for name in attempts}
        for name, array in zip(owners, column, strict=True):
            parts[name].append(array)
        by_name[each.name] = {name: to_turns(attempts[name], arrays) for name, arrays in parts.items()}
    return by_name


def _mean_gap(attempts: Attempts, scores: Mapping[TrajectoryId, TurnArrays]) -> Mean:
    """Return the mean of sampler minus `scores` log-probabilities over sampled tokens: the k1 estimate of the
    divergence."""
    gaps = [
        training_logprobs(turn.completion).astype(np.float64) - scored
        for name, attempt in attempts.items()
        for turn, scored in zip(attempt.turns, scores[name], strict=True)
    ]
    joined = np.concatenate([np.zeros(0), *gaps])
    return Mean(float(joined.sum()), float(len(joined)))
