"""The trainer in this process: policy, critic, reference, teacher and implicit reward model behind one interface.

A step changes every model or none. If a step consists of one update, all gradients are computed and checked before any
is applied. If it has several (updates per step, passes, epochs of the critic, an implicit reward model that learned in
`score`), a copy of weights and moments is restored when anything goes wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from turnwise.batching.collate import Packing, TokenColumn
from turnwise.batching.ranks import find_largest
from turnwise.batching.samples import forget_experts
from turnwise.core.batch import Column, Columns, Objective, StepReport, TrainingBatch, Wanted
from turnwise.core.errors import TrainingError
from turnwise.core.metrics import Max, Mean, Metric, Sum, merge
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Sample
from turnwise.models.checksums import count_changed
from turnwise.models.forward import can_share
from turnwise.models.layers import recompute_layers
from turnwise.models.lora import apply_dropout
from turnwise.models.rows import find_device
from turnwise.store.checkpoint_folder import verify_checkpoint, whole_folder
from turnwise.training.concentration import CONCENTRATIONS, score_concentration
from turnwise.training.critic import Critic, compute_value_columns, run_critic_step, score_values
from turnwise.training.forward import score_logprobs
from turnwise.training.implicit_reward import ImplicitReward, run_implicit_reward_step, score_implicit_rewards
from turnwise.training.masters import describe_format
from turnwise.training.optimizer import BuildOptimizer, Schedule, Trained, build_optimizer
from turnwise.training.placement import WHOLE, Placement
from turnwise.training.policy_step import MOVED, PolicyLoss, run_policy_step
from turnwise.training.preference_step import PairFunction, run_pair_step
from turnwise.training.resolution import ResolutionWatch
from turnwise.training.routing import check_routing
from turnwise.training.sft import measure_sft_loss, run_sft_step
from turnwise.training.snapshot import Snapshot
from turnwise.training.state import load_training_state, load_weights, read_counters, save_training_state
from turnwise.training.throughput import describe_gpu_memory, measure_throughput, take_gpu_memory

Model = TypeVar("Model")
START_FOLDER = "step_000000"
"""Checkpoint of the policy that RL starts from, beside the run's other checkpoints."""
PHASES: Mapping[Objective, str] = {"cpt": "cpt.lr", "warmup": "sft.lr"}
"""Supervised phases before RL, each with the option of its learning rate."""
TITLES: Mapping[Objective, str] = {"cpt": "continual pre-training", "warmup": "the supervised warm-up"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSettings:
    """Numbers of a recipe that every step reads."""

    schedule: Schedule
    """Learning rates of the RL optimizer."""
    warmup: Schedule
    """Learning rates of the supervised warm-up's optimizer."""
    pretraining: Schedule | None = None
    """Learning rates of the optimizer of continual pre-training; None for a trainer without that phase."""
    betas: tuple[float, float]
    weight_decay: float
    max_grad_norm: float
    build_optimizer: BuildOptimizer | None = None
    """Builds the policy's optimizer; None is AdamW."""
    packing: Packing
    temperature: float
    """Sampling temperature of the rollouts."""
    critic_epochs: int = 1
    """Optimizer steps of a separate critic per batch."""
    seed: int = 0
    """Seed of an adapter's dropout."""
    recompute_activations: bool = False
    """Whether backward passes recompute the layers instead of keeping activations of the forward passes."""
    needs_reference: bool = False
    """Whether a frozen copy of the policy that RL starts from is kept."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Policy:
    module: PreTrainedModel
    optimizer: Any


@dataclass(slots=True, kw_only=True, eq=False)
class _Phase:
    """Supervised steps before RL, with an optimizer and a schedule of their own."""

    name: Objective
    policy: _Policy
    schedule: Schedule
    option: str
    """The option of its learning rate."""
    steps: int = 0
    """Optimizer steps so far."""
    watch: ResolutionWatch = field(default_factory=ResolutionWatch)


class LocalTrainer:
    """Trains in this process. Implements `core.protocols.Trainer`.

    The critic and the implicit reward model are built, and the reference is copied, at the first call that belongs to
    RL: by then continual pre-training and warm-up are over.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        settings: TrainerSettings,
        *,
        loss: PolicyLoss | None = None,
        pair_loss: PairFunction | None = None,
        build_critic: Callable[[PreTrainedModel, Placement], Critic] | None = None,
        build_implicit: Callable[[PreTrainedModel, Placement], ImplicitReward] | None = None,
        teacher: PreTrainedModel | None = None,
        placement: Placement = WHOLE,
    ) -> None:
        """`model` is the policy and is trained in place.

        `tokenizer` is saved with checkpoints; None for a rank, which saves no tokenizer. `loss` is for policy gradient,
        `pair_loss` for preferences; `teacher` is a frozen model with the policy's vocabulary. `model` and `teacher`
        must already be placed.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        self._placement = placement
        self._packing: Packing = {**settings.packing, "ranks": placement.ranks}
        if not can_share(model):
            self._packing["shared_prefix"] = False
        if settings.recompute_activations:
            recompute_layers(model)
        self.optimizer_steps = 0
        self._policy = _Policy(module=model, optimizer=self._build_optimizer(settings.schedule.base))
        self._loss, self._pair_loss, self._teacher = loss, pair_loss, teacher
        self._build_critic, self._build_implicit = build_critic, build_implicit
        self._critic: Critic | None = None
        self._implicit: ImplicitReward | None = None
        self._has_companions = False
        self._reference: PreTrainedModel | None = None
        self._phase: _Phase | None = None
        self._unstepped: Snapshot | None = None
        self._scoring: dict[str, Metric] = {}
        self._watch = ResolutionWatch()

    # ------------------------------------------------------------------------------------------------ the seam

    def score(
        self, samples: Sequence[Sample], wanted: frozenset[Wanted], *, outcomes: Sequence[float] | None = None
    ) -> Columns:
        """See `Trainer.score`. A second call before a step starts from the weights of the first.

        Raises TrainingError if a requested model is not part of this trainer, or the implicit reward model cannot learn
        from the outcomes.
        """
        self._begin()
        self._take_back()
        started = time.perf_counter()
        try:
            columns, metrics = self._score(samples, wanted, outcomes)
        except BaseException:
            self._take_back()
            raise
        self._scoring = metrics | ({"train/scoring_seconds": Sum(time.perf_counter() - started)} if wanted else {})
        return columns

    def step(self, batch: TrainingBatch) -> StepReport:
        """See `Trainer.step`. Without updates, only an implicit reward model that learned in `score` changes.

        Raises TrainingError if a loss or a gradient is not finite, an update has no token to train, or the last updates
        were below the resolution of the weights.
        """
        phase = self._open_phase(batch.objective) if batch.objective in PHASES else None
        (self._watch if phase is None else phase.watch).check()
        if phase is None:
            self._begin()
        counts = self.optimizer_steps, 0 if phase is None else phase.steps
        before = {} if phase is not None else self._placement.compute_sums(self.model)
        policy = self._policy if phase is None else phase.policy
        copied = self._copy_if_several(batch, policy)
        try:
            metrics = self._train(batch) if phase is None else self._run_phase(batch, phase)
        except BaseException:
            if copied is not None:
                copied.restore()
            self._take_back()
            self._forget_gradients()
            self._set_counts(counts)
            raise
        self._unstepped = None
        sums = self._placement.compute_sums(self.model)
        if phase is None:
            metrics = {**self._scoring, **metrics, "train/changed_tensors": Sum(count_changed(before, sums))}
            metrics |= self._measure_cost(batch, metrics)
            self._scoring = {}
        return StepReport(metrics=metrics, optimizer_steps=self.optimizer_steps, sums=sums)

    def remember(self) -> Callable[[], None]:
        """See `RememberingTrainer.remember`."""
        phase = [] if self._phase is None else [self._phase.policy]
        snapshot = Snapshot([self._policy, *phase, *self._list_companions().values()])
        counts = self.optimizer_steps, 0 if self._phase is None else self._phase.steps

        def put_back() -> None:
            snapshot.restore()
            self._set_counts(counts)

        return put_back

    def save(self, folder: Path, counters: Mapping[str, Any]) -> None:
        """See `Trainer.save`; `optimizer_steps` is added to the counters.

        Undoes what `score` learned since the last step. With counters that name a `phase`, what is saved is that phase
        in its middle: the weights, and its own optimizer.
        """
        if "phase" in counters:
            phase = self._open_phase(counters["phase"])
            counters = {**counters, "phase_steps": phase.steps}
            save_training_state(folder, self.model, self.tokenizer, phase.policy.optimizer, counters)
            return
        self._begin()
        self._take_back()
        counters = {**counters, "optimizer_steps": self.optimizer_steps}
        save_training_state(
            folder, self.model, self.tokenizer, self._policy.optimizer, counters, self._list_companions()
        )

    def load(self, folder: Path) -> Mapping[str, Any]:
        """See `Trainer.load`. The counters are those given to `save`, plus `optimizer_steps`.

        For a checkpoint with `step` above 0 the reference is read from the checkpoint step_000000 beside it. One of a
        phase's middle continues that phase.
        """
        if (saved := read_counters(folder)) and "phase" in saved:
            phase = self._open_phase(saved["phase"])
            counters = load_training_state(folder, self.model, phase.policy.optimizer)
            phase.steps = int(counters["phase_steps"])
            return counters
        self._build_companions()
        counters = load_training_state(folder, self.model, self._policy.optimizer, self._list_companions())
        self._unstepped, self._scoring, self._reference = None, {}, None
        self.optimizer_steps = int(counters.get("optimizer_steps", 0))
        if self.settings.needs_reference and counters.get("step", 0):
            whole = whole_folder(folder)
            start = whole.parent / START_FOLDER
            verify_checkpoint(start)
            self._reference = self._copy_policy()
            load_weights(start / folder.relative_to(whole), self._reference)
        return counters

    # ------------------------------------------------------------------------------------------------ models

    def _build_optimizer(self, lr: float) -> Any:
        settings = self.settings
        return build_optimizer(
            self.model,
            lr=lr,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            build=settings.build_optimizer,
            computes_in=self._placement.find_dtype(self.model),
        )

    def _begin(self) -> None:
        """End the supervised phases: create the models that start as copies of the policy."""
        self._phase = None
        self._build_companions()
        if self.settings.needs_reference and self._reference is None:
            self._reference = self._copy_policy()

    def _build_companions(self) -> None:
        if not self._has_companions:
            self._critic = self._build_critic(self.model, self._placement) if self._build_critic is not None else None
            self._implicit = (
                self._build_implicit(self.model, self._placement) if self._build_implicit is not None else None
            )
            for trained in self._list_companions().values() if self.settings.recompute_activations else ():
                recompute_layers(trained.module)
            self._has_companions = True

    def _copy_policy(self) -> PreTrainedModel:
        return self._placement.place(self._placement.copy(self.model).requires_grad_(False))

    def _list_companions(self) -> dict[str, Trained]:
        """Return the models trained beside the policy, by the names of their checkpoint files."""
        companions: dict[str, Trained | None] = {"critic": self._critic, "implicit": self._implicit}
        return {name: model for name, model in companions.items() if model is not None}

    def _copy_if_several(self, batch: TrainingBatch, policy: _Policy) -> Snapshot | None:
        """Return a copy of what the step trains; None for a step with one update, which is checked before it is
        applied."""
        num_updates = sum(1 for update in batch.updates if update)
        trained: list[Trained] = [policy]
        if batch.objective == "policy_gradient" and self._critic is not None:
            trained.append(self._critic)
            if not self._critic.is_shared and num_updates:
                num_updates += self.settings.critic_epochs
        return Snapshot(trained) if num_updates > 1 else None

    def _take_back(self) -> None:
        """Undo what the implicit reward model learned since the last step."""
        if self._unstepped is not None:
            self._unstepped.restore()
        self._unstepped, self._scoring = None, {}

    def _forget_gradients(self) -> None:
        for trained in (self._policy, *self._list_companions().values()):
            trained.module.zero_grad(set_to_none=True)
            trained.optimizer.zero_grad(set_to_none=True)

    # ------------------------------------------------------------------------------------------------ scores

    def _score(
        self, samples: Sequence[Sample], wanted: frozenset[Wanted], outcomes: Sequence[float] | None
    ) -> tuple[Columns, dict[str, Metric]]:
        packing, temperature = self._packing, self.settings.temperature
        columns: dict[str, Any] = {}
        metrics: dict[str, Metric] = {}
        freely_routed = forget_experts(samples)

        def score(model: PreTrainedModel) -> Column:
            of_model = samples if model is self.model else freely_routed
            return tuple(score_logprobs(model, of_model, temperature, **packing))

        if "values" in wanted:
            critic = _require(self._critic, "values", "critic.kind")
            values, finals = score_values(critic, samples if critic.is_shared else freely_routed, **packing)
            columns |= {"values": tuple(values), "final_values": tuple(finals)}
        if wanted & {"policy_logprobs", "old_logprobs"}:
            present = score(self.model)
            columns |= {name: present for name in ("policy_logprobs", "old_logprobs") if name in wanted}
        if wanted & {"reference_logprobs", "implicit_rewards"}:
            columns["reference_logprobs"] = score(_require(self._reference, "reference_logprobs", "loss.kl"))
        if "teacher_logprobs" in wanted:
            columns["teacher_logprobs"] = score(_require(self._teacher, "teacher_logprobs", "loss.teacher.path"))
        if wanted & CONCENTRATIONS.keys():
            columns.update(score_concentration(self.model, samples, temperature, wanted, **packing).items())
        if "implicit_rewards" in wanted:
            rewards, metrics = self._learn_rewards(freely_routed, outcomes, columns["reference_logprobs"])
            columns["implicit_rewards"] = rewards
        if "reference_logprobs" not in wanted:
            columns.pop("reference_logprobs", None)
        return Columns(**columns), metrics

    def _learn_rewards(
        self, samples: Sequence[Sample], outcomes: Sequence[float] | None, reference: Column
    ) -> tuple[Column, dict[str, Metric]]:
        implicit = _require(self._implicit, "implicit_rewards", "credit.method='prime'")
        if outcomes is None or len(outcomes) != len(samples):
            raise TrainingError(
                f"an implicit reward model learns from one outcome per sample; got "
                f"{'none' if outcomes is None else len(outcomes)} for {len(samples)} samples"
            )
        settings = self.settings
        self._unstepped = Snapshot([implicit])
        metrics = run_implicit_reward_step(
            implicit,
            samples,
            outcomes,
            reference,
            temperature=settings.temperature,
            max_grad_norm=settings.max_grad_norm,
            **self._packing,
        )
        rewards = score_implicit_rewards(
            implicit, samples, reference, temperature=settings.temperature, **self._packing
        )
        return tuple(rewards), metrics

    # ------------------------------------------------------------------------------------------------ steps

    def _train(self, batch: TrainingBatch) -> dict[str, Metric]:
        if batch.objective == "policy_gradient":
            return self._train_policy(batch)
        return self._train_pairs(batch) if batch.objective == "preference" else self._train_supervised(batch)

    def _next_lr(self) -> float:
        """Return the learning rate of the RL optimizer's next step, and count that step as taken."""
        self.optimizer_steps += 1
        return self.settings.schedule.find_lr(self.optimizer_steps - 1)

    def _train_policy(self, batch: TrainingBatch) -> dict[str, Metric]:
        """Run every update of the policy, with a critic that shares its layers, then the epochs of a separate
        critic."""
        check_routing(self.model, batch.samples)
        settings, loss, critic = self.settings, self._adapt_loss(batch), self._critic
        shared = critic if critic is not None and critic.is_shared else None
        metrics: dict[str, Metric] = {}
        for number, update in enumerate(batch.updates):
            lr = self._next_lr()
            if not update:
                metrics = merge(metrics, {"train/lr": Max(lr)})
                continue
            columns = batch.columns.select(update)
            by_name: dict[str, TokenColumn] = {}
            if columns.old_logprobs is not None:
                by_name["old_logprobs"] = columns.old_logprobs
            if shared is not None:
                by_name |= compute_value_columns(*_read_targets(columns))
            measured = run_policy_step(
                self.model,
                self._policy.optimizer,
                [batch.samples[i] for i in update],
                loss=loss,
                lr=lr,
                max_grad_norm=settings.max_grad_norm,
                **self._packing,
                columns=by_name,
                reference=self._reference if loss.kl_coefficient else None,
                teacher=self._teacher,
                critic=shared,
            )
            self._note(measured, lr)
            if number:
                # Only the first update trains the weights that sampled; later gaps come from learning, not from a
                # mismatch.
                measured = {
                    name: metric
                    for name, metric in measured.items()
                    if not name.startswith(("train/logprob_", "train/effective_share", MOVED))
                }
            metrics = merge(metrics, measured)
        if critic is not None and shared is None and any(batch.updates):
            for _ in range(settings.critic_epochs):
                targets = compute_value_columns(*_read_targets(batch.columns))
                measured = run_critic_step(
                    critic,
                    forget_experts(batch.samples),
                    targets,
                    max_grad_norm=settings.max_grad_norm,
                    **self._packing,
                )
                metrics = merge(metrics, measured)
        return metrics

    def _measure_cost(self, batch: TrainingBatch, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
        """Return the updates' operations per second, and the GPU memory of the rank that needed most."""
        ranks = self._placement.ranks
        gib = take_gpu_memory(find_device(self.model))
        memory = describe_gpu_memory(None if gib is None else find_largest(gib, ranks))
        computed, seconds = metrics.get("train/computed_tokens"), metrics.get("train/seconds")
        if computed is None or seconds is None:
            return memory
        samples = [batch.samples[i] for update in batch.updates for i in update]
        return memory | measure_throughput(
            self.model, samples, computed=computed.value, seconds=seconds.value, size=ranks.size
        )

    def _adapt_loss(self, batch: TrainingBatch) -> PolicyLoss:
        if self._loss is None:
            raise TrainingError("this trainer has no policy loss; build it with train.algorithm='policy_gradient'")
        loss = self._loss
        if batch.kl_coefficient is not None:
            loss = replace(loss, kl_coefficient=batch.kl_coefficient)
        if batch.entropy_coefficient is not None:
            loss = replace(loss, entropy_coefficient=batch.entropy_coefficient)
        return loss

    def _train_supervised(self, batch: TrainingBatch) -> dict[str, Metric]:
        metrics: dict[str, Metric] = {}
        for update in batch.updates:
            lr = self._next_lr()
            metrics = merge(metrics, {"train/lr": Max(lr)})
            if update:
                measured = self._run_supervised(self._policy, batch, update, lr, 0)
                measured |= {"train/loss": measured.pop("sft/loss"), "train/seconds": measured.pop("sft/seconds")}
                self._note(measured, lr)
                metrics = merge(metrics, measured)
        return metrics

    def _open_phase(self, name: Objective) -> _Phase:
        """Return the phase, with a new optimizer where another one came before it."""
        if self._has_companions:
            raise TrainingError(f"{TITLES[name]} must run before reinforcement learning, which has already started")
        if self._phase is None or self._phase.name != name:
            schedule = self.settings.warmup if name == "warmup" else self.settings.pretraining
            if schedule is None:
                raise TrainingError("this trainer has no schedule of continual pre-training; set cpt.steps")
            self._phase = _Phase(
                name=name,
                policy=_Policy(module=self.model, optimizer=self._build_optimizer(schedule.base)),
                schedule=schedule,
                option=PHASES[name],
            )
        return self._phase

    def _set_counts(self, counts: tuple[int, int]) -> None:
        """Set the optimizer steps of RL, and of the supervised phase."""
        self.optimizer_steps = counts[0]
        if self._phase is not None:
            self._phase.steps = counts[1]

    def _run_phase(self, batch: TrainingBatch, phase: _Phase) -> dict[str, Metric]:
        """Take the updates of a supervised phase; without any, only the loss is measured."""
        if not batch.updates:
            return measure_sft_loss(self.model, forget_experts(batch.samples), **self._packing)
        metrics: dict[str, Metric] = {}
        for update in batch.updates:
            lr = phase.schedule.find_lr(phase.steps)
            phase.steps += 1
            if update:
                measured = self._run_supervised(phase.policy, batch, update, lr, phase.steps)
                self._note(measured, lr, phase)
                metrics = merge(metrics, _name_measured(phase.name, measured, lr))
        return metrics

    def _run_supervised(
        self, policy: _Policy, batch: TrainingBatch, update: Sequence[int], lr: float, phase_steps: int
    ) -> dict[str, Metric]:
        seed = derive_seed(self.settings.seed, batch.objective, phase_steps, self.optimizer_steps)
        with apply_dropout(self.model, seed):
            return run_sft_step(
                self.model,
                policy.optimizer,
                forget_experts(batch.samples[i] for i in update),
                lr=lr,
                max_grad_norm=self.settings.max_grad_norm,
                option=PHASES.get(batch.objective, "train.lr"),
                **self._packing,
            )

    def _train_pairs(self, batch: TrainingBatch) -> dict[str, Metric]:
        """Take one optimizer step on all pairs; without a pair only the schedule advances."""
        lr = self._next_lr()
        if not batch.pairs:
            return {"train/pairs": Sum(0), "train/lr": Max(lr)}
        if self._pair_loss is None:
            raise TrainingError("this trainer has no pair loss; build it with train.algorithm='dpo' or 'step_dpo'")
        measured = run_pair_step(
            self.model,
            _require(self._reference, "preference pairs", "train.algorithm='dpo'"),
            self._policy.optimizer,
            forget_experts(batch.samples),
            batch.pairs,
            loss=self._pair_loss,
            temperature=self.settings.temperature,
            lr=lr,
            max_grad_norm=self.settings.max_grad_norm,
            **self._packing,
        )
        self._note(measured, lr)
        return measured

    def _note(self, measured: Mapping[str, Metric], lr: float, phase: _Phase | None = None) -> None:
        """Watch whether updates still change the policy's weights."""
        changed, norm = measured.get("train/changed_share"), measured.get("train/grad_norm")
        if isinstance(changed, Mean) and isinstance(norm, Mean):
            (self._watch if phase is None else phase.watch).note(
                share=changed.value,
                driven=changed.weight,
                norm=norm.value,
                lr=lr,
                peak_lr=(self.settings.schedule if phase is None else phase.schedule).base,
                option="train.lr" if phase is None else phase.option,
                dtype=describe_format(self.model),
            )


def _name_measured(phase: Objective, measured: Mapping[str, Metric], lr: float) -> dict[str, Metric]:
    """Return what is recorded of a supervised step, under the names of its phase."""
    own = {name: value for name, value in measured.items() if name.startswith("sft/")}
    if phase == "warmup":
        return own
    loss = own["sft/loss"]
    assert isinstance(loss, Mean)  # its weight is the number of trained tokens
    named: dict[str, Metric] = {name.replace("sft/", "cpt/"): value for name, value in own.items()}
    return named | {"cpt/tokens": Sum(loss.weight), "cpt/lr": Max(lr)}


def _require(model: Model | None, what: str, option: str) -> Model:
    if model is None:
        raise TrainingError(f"this trainer has no model for {what}; set {option}")
    return model


def _read_targets(columns: Columns) -> tuple[Sequence[NDArray[np.generic]], Sequence[NDArray[np.generic]]]:
    """Return old values and returns. Raises TrainingError if the batch lacks either."""
    if columns.values is None or columns.returns is None:
        raise TrainingError("the batch has no values or returns, which the critic needs; score `values` first")
    return columns.values, columns.returns
