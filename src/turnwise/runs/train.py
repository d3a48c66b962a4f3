"""The whole path: warm-up, evaluation, RL steps, evaluation, report. Synchronous: rollout, credit, train, next version."""

from __future__ import annotations

import asyncio
import copy
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from turnwise.algorithms.advantages import has_signal
from turnwise.batching.samples import to_samples, unmask_observations
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, TrainingError, boundary
from turnwise.core.metrics import Mean, Metric, Rate, Sum, merge, record
from turnwise.core.seeds import rng
from turnwise.core.types import Sample, Scored, TrajectoryGroup
from turnwise.evaluation.summary import Summary, is_success
from turnwise.reporting.console import Display
from turnwise.reporting.report import write_report
from turnwise.runs.build import Estimator, System, build_estimator, build_system, set_threads
from turnwise.runs.evaluate import evaluate_policy, load_run
from turnwise.runs.sft import first_rl_task, run_warmup
from turnwise.store.checkpoint_folder import checkpoint_writer, latest_checkpoint, prune, sweep, verify_checkpoint
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_group_batch
from turnwise.training.optimizer import build_optimizer, compute_lr
from turnwise.training.policy_step import PolicyLoss, run_policy_step
from turnwise.training.state import Counters, load_training_state, save_training_state


def run_train(config: RunConfig | None, *, resume: Path | None, display: bool) -> Path:
    """Train by the recipe, or continue the run folder `resume` by its own recipe. Returns the run folder.

    On CPU a continued run writes the same metrics, bit for bit and timings apart, as one that was never stopped.
    Raises TurnwiseError for everything a user can mend; what was written before stays.
    """
    if resume is not None:
        folder, config = load_run(resume)
    elif config is not None:
        name = f"{config.run.name}-seed{config.run.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = RunFolder.create(Path(config.run.output) / name)
        folder.write_json("config.json", dump_resolved(config))
    else:
        raise ConfigError("nothing to train: name a recipe file, or a run folder with --resume")
    system = build_system(config)
    with Display(total_steps=config.train.steps, title=config.run.name, enabled=display) as show:
        Run(system, folder, show).run()
    return folder.path


class Run:
    """One training run: the objects, where it stands, and the order of its phases."""

    def __init__(self, system: System, folder: RunFolder, show: Display) -> None:
        self.system = system
        self.config = system.config
        self.folder = folder
        self.show = show
        train = self.config.train
        self.optimizer = build_optimizer(system.model, lr=train.lr, betas=(train.beta1, train.beta2), weight_decay=train.weight_decay)
        self.estimator = build_estimator(self.config)
        self.counters = Counters(step=0, optimizer_steps=0, version=0)

    def run(self) -> None:
        """Every phase that is still to do."""
        config = self.config
        sweep(self.folder.path)
        checkpoint = latest_checkpoint(self.folder.path)
        if checkpoint is None:
            self.folder.truncate(after_step=-1)
            self._warm_up()
            self._checkpoint()
        else:
            verify_checkpoint(checkpoint)
            self.counters = load_training_state(checkpoint, self.system.model, self.optimizer)
            self.folder.truncate(after_step=self.counters.step)
            self.show.note(f"continuing after step {self.counters.step}")
        self.system.engine.adopt(self.counters.version)
        reference = self._reference()
        # The step of the checkpoint itself comes first: its evaluation may be what was interrupted.
        for step in range(self.counters.step, config.train.steps + 1):
            last = step == config.train.steps
            if step > self.counters.step:
                self._step(step, reference)
                if last or (config.train.checkpoint_every and step % config.train.checkpoint_every == 0):
                    self._checkpoint()
            if last or step == 0 or (config.evaluate.every and step % config.evaluate.every == 0):
                self._evaluate(self._label(step), step)
        if config.train.steps:
            for name, changes in config.evaluate.controls.items():
                self._evaluate(f"after RL, {name}", config.train.steps, name, dict(changes))
        write_report(self.folder)

    def _label(self, step: int) -> str:
        """What a person calls the policy after `step` RL steps."""
        if step == 0:
            return "after SFT" if self.config.sft.steps else "before training"
        return "after RL" if step == self.config.train.steps else f"step {step}"

    def _warm_up(self) -> None:
        self.show.phase("sft", total=self.config.sft.steps)

        def report(step: int, metrics: dict[str, Metric]) -> None:
            values = record(metrics)
            self.folder.append_metrics(step, "sft", values)
            self.show.update(step, values)

        run_warmup(self.system, report)

    def _reference(self) -> PreTrainedModel | None:
        """A frozen copy of the policy RL starts from; None when the KL term is off. On resume, the warm-up's checkpoint."""
        if not self.config.loss.kl_coefficient:
            return None
        reference = copy.deepcopy(self.system.model)
        if self.counters.step:
            start = self.folder.path / "checkpoints" / "step_000000"
            verify_checkpoint(start)
            load_training_state(start, reference, build_optimizer(reference, lr=0.0, betas=(0.9, 0.999), weight_decay=0.0))
        return reference.requires_grad_(False)

    def _evaluate(self, label: str, step: int, control: str | None = None, changes: dict[str, Any] | None = None) -> None:
        name = f"heldout_{step:06d}" + (f"_{control}" if control else "")
        # The metrics row is written last: where it stands, the evaluation is whole.
        done = any(row["phase"] == "evaluate" and row["step"] == step for row in self.folder.read_metrics())
        if control is not None:
            done = (self.folder.path / "evaluations" / f"{name}.summary.json").exists()
        if done or not self.config.evaluate.tasks:
            return
        self.show.phase("evaluate")
        summary: Summary = evaluate_policy(
            self.system, self.folder, name=name, label=label, step=step, num_tasks=self.config.evaluate.tasks, changes=changes
        )
        row = summary.row("all")
        if control is None:
            values = record({"evaluate/success": Mean(row.success), "evaluate/tool_calls": Mean(row.tool_calls)})
            self.folder.append_metrics(step, "evaluate", values)
        self.show.note(f"held-out success {label}: {row.success:.3f} [{row.low:.3f}, {row.high:.3f}] on {row.n} tasks")

    def _step(self, step: int, reference: PreTrainedModel | None) -> None:
        """One RL step: rollout, credit, optimizer, new version, records."""
        config = self.config
        self.show.phase("rollout")
        started = time.perf_counter()
        groups = self._rollout(step)
        seconds = time.perf_counter() - started
        metrics = compute_rollout_metrics(groups, seconds)
        advantages = compute_credit(groups, self.estimator)
        self.show.phase("train")
        samples = to_batch(groups, advantages, config)
        for update, part in enumerate(split_updates(samples, config.loss.updates_per_step, config.run.seed, step)):
            metrics = merge(metrics, self._update(part, update, reference))
        version = self.counters.version + 1
        self.system.engine.adopt(version)
        self.counters = replace(self.counters, step=step, version=version)
        save_group_batch(
            self.folder.path / "trajectories", f"step_{step:06d}", groups, advantages=advantages, decode=self.system.tokenizer.decode
        )
        values = record(metrics)
        self.folder.append_metrics(step, "train", values)
        self.show.update(step, values)

    def _rollout(self, step: int) -> list[TrajectoryGroup]:
        rollout = self.config.rollout
        first = first_rl_task(self.config) + (step - 1) * rollout.tasks_per_step
        tasks = [(f"step{step}/task{i}", self.system.family.task("train", first + i)) for i in range(rollout.tasks_per_step)]
        worker = self.system.worker("train")
        set_threads(self.config.engine.num_threads)
        groups = asyncio.run(worker.run_groups(tasks, group_size=rollout.group_size))
        worker.failure.check(groups)
        return groups

    def _update(self, samples: Sequence[Sample], update: int, reference: PreTrainedModel | None) -> dict[str, Metric]:
        config = self.config
        loss = config.loss
        set_threads(config.train.num_threads)
        metrics = run_policy_step(
            self.system.model,
            self.optimizer,
            samples,
            loss=PolicyLoss(
                clip_low=loss.clip_low,
                clip_high=loss.clip_high,
                kl_coefficient=loss.kl_coefficient,
                entropy_coefficient=loss.entropy_coefficient,
                temperature=config.rollout.temperature,
            ),
            lr=compute_lr(
                self.counters.optimizer_steps,
                base=config.train.lr,
                warmup_steps=config.train.warmup_steps,
                total_steps=config.train.steps * loss.updates_per_step,
                decay=config.train.decay,
            ),
            max_grad_norm=config.train.max_grad_norm,
            micro_batch_tokens=config.train.micro_batch_tokens,
            reference=reference,
        )
        self.counters = replace(self.counters, optimizer_steps=self.counters.optimizer_steps + 1)
        if update:
            # Only the first update sees the weights that sampled; later gaps are learning, not mismatch.
            metrics = {name: metric for name, metric in metrics.items() if not name.startswith("train/logprob_gap")}
        return metrics

    def _checkpoint(self) -> None:
        with checkpoint_writer(self.folder.path, self.counters.step) as temporary:
            save_training_state(temporary, self.system.model, self.system.tokenizer, self.optimizer, self.counters)
        prune(self.folder.path, keep=self.config.train.keep_checkpoints, always={0})


def compute_credit(groups: Sequence[TrajectoryGroup], estimator: Estimator) -> dict[tuple[str, int], float]:
    """Advantage per `(group_id, member)`; Invalid members have none.

    Raises TrainingError when the estimator gives another number of advantages than rewards, or one that is not finite.
    """
    advantages: dict[tuple[str, int], float] = {}
    for group in groups:
        rewards = group.rewards()
        with boundary(TrainingError, f"credit of group {group.group_id}"):
            values = list(estimator(rewards))
        if len(values) != len(rewards) or any(v is not None and not math.isfinite(v) for v in values):
            raise TrainingError(
                f"credit.estimator gave {values} for the {len(rewards)} rewards {rewards} of group {group.group_id}; "
                "it must give one finite number per reward, None where the reward is None"
            )
        for trajectory, reward, value in zip(group.trajectories, rewards, values, strict=True):
            if reward is not None and value is not None:
                advantages[group.group_id, trajectory.member] = float(value)
    return advantages


def to_batch(groups: Sequence[TrajectoryGroup], advantages: Mapping[tuple[str, int], float], config: RunConfig) -> list[Sample]:
    """Samples of every scored trajectory. An Invalid one has no advantage and trains nothing."""
    samples: list[Sample] = []
    for group in groups:
        for trajectory in group.trajectories:
            advantage = advantages.get((group.group_id, trajectory.member))
            if advantage is not None:
                samples += to_samples(trajectory, advantage)
    return samples if config.loss.mask_observations else unmask_observations(samples)


def split_updates(samples: Sequence[Sample], updates: int, seed: int, step: int) -> list[list[Sample]]:
    """The batch in `updates` parts of nearly equal size, shuffled when there are several. Every sample is in exactly one."""
    if updates == 1:
        return [list(samples)]
    shuffled = list(samples)
    rng(seed, "updates", step).shuffle(shuffled)
    return [shuffled[i::updates] for i in range(updates) if shuffled[i::updates]]


def compute_rollout_metrics(groups: Sequence[TrajectoryGroup], seconds: float) -> dict[str, Metric]:
    """What a rollout phase says."""
    trajectories = [t for group in groups for t in group.trajectories]
    scored = [t for t in trajectories if isinstance(t.reward, Scored)]
    sampled = sum(t.num_sampled_tokens for t in trajectories)
    context = sum(len(turn.context_ids) for t in trajectories for turn in t.turns)
    return {
        "rollout/reward": Mean.of(t.reward.total for t in scored if isinstance(t.reward, Scored)),
        "rollout/success": Mean.of(float(is_success(t)) for t in scored),
        "rollout/tool_calls": Mean.of(float(t.num_tool_calls) for t in trajectories),
        "rollout/turns": Mean.of(float(len(t.turns)) for t in trajectories),
        "rollout/sampled_tokens": Sum(sampled),
        "rollout/context_tokens": Sum(context),
        "rollout/tokens_per_s": Rate(sampled, seconds),
        "rollout/truncated": Mean.of(float(t.stop.is_truncated) for t in trajectories),
        "rollout/invalid": Mean.of(float(not isinstance(t.reward, Scored)) for t in trajectories),
        "rollout/parse_errors": Mean.of(float(sum(len(turn.message.tool_errors) for turn in t.turns)) for t in trajectories),
        "rollout/seconds": Sum(seconds),
        "credit/no_signal_groups": Mean.of(float(not has_signal(group.rewards())) for group in groups),
    }
