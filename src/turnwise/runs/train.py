"""The whole path: warm-up, evaluation, RL steps, evaluation, report. Synchronous: rollout, credit, train, next
version."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from turnwise.audit.parity_gate import run_parity_gate
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.metrics import Mean, Metric, Sum, record
from turnwise.evaluation.summary import Summary
from turnwise.learning.policy_gradient import PolicyGradient
from turnwise.learning.selection import PreferenceOptimization, RejectionSampling
from turnwise.models.build import describe_device
from turnwise.models.checksums import compute_checksums, count_changed
from turnwise.reporting.console import Display
from turnwise.reporting.report import write_report
from turnwise.runs.accounting import compute_diversity_metrics, describe_alarms, open_account
from turnwise.runs.build import System, build_system, find_device, fit_to_machine
from turnwise.runs.evaluate import evaluate_policy, load_run
from turnwise.runs.methods import build_credit_method, check_methods
from turnwise.runs.policy import Learned, Learner, TrainedPolicy
from turnwise.runs.sampling import compute_rollout_metrics, sample_groups
from turnwise.runs.sft import first_rl_task, run_warmup
from turnwise.store.checkpoint_folder import checkpoint_writer, latest_checkpoint, prune, sweep, verify_checkpoint
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import save_group_batch
from turnwise.training.optimizer import build_optimizer
from turnwise.training.state import Counters, load_training_state, save_training_state


def run_train(config: RunConfig | None, *, resume: Path | None, display: bool, device: str | None = None) -> Path:
    """Train by the recipe, or continue the run folder `resume` by its own recipe (on `device`; None: its own). Returns
    the run folder.

    On CPU a continued run writes the same metrics, bit for bit and timings apart, as one that was never stopped.
    Raises TurnwiseError for everything a user can mend; what was written before stays.
    """
    if resume is not None:
        folder, config = load_run(resume, device=device)
        check_methods(config)
        find_device(config)
    elif config is not None:
        check_methods(config)
        config = fit_to_machine(config)  # before there is a run folder
        name = f"{config.run.name}-seed{config.run.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = RunFolder.create(Path(config.run.output) / name)
        folder.write_json("config.json", dump_resolved(config))
    else:
        raise ConfigError("nothing to train: name a recipe file, or a run folder with --resume")
    try:
        system = build_system(config)
    except BaseException:
        if resume is None:
            folder.discard()
        raise
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
        self.policy = TrainedPolicy(system)
        self.counters = Counters(step=0, optimizer_steps=0, version=0)
        self.alarms: list[str] = []
        """Of the last step: what goes on is not said again."""

    def run(self) -> None:
        """Every phase that is still to do."""
        config = self.config
        sweep(self.folder.path)
        self.folder.append_event("device", describe_device(self.system.model.device))
        checkpoint = latest_checkpoint(self.folder.path)
        if checkpoint is None:
            self.folder.truncate(after_step=-1)
            self._warm_up()
            # A critic with layers of its own starts as a copy of the policy RL starts from.
            self.learner = self._build_learner()
            self._checkpoint()
        else:
            verify_checkpoint(checkpoint)
            self.learner = self._build_learner()
            self.counters = load_training_state(
                checkpoint, self.system.model, self.policy.optimizer, self.learner.companions
            )
            self.policy.optimizer_steps = self.counters.optimizer_steps
            self.learner.load_state_dict(self.counters.credit)
            self.folder.truncate(after_step=self.counters.step)
            self.show.note(f"continuing after step {self.counters.step}")
        self.system.engine.adopt(self.counters.version)
        # The step of the checkpoint itself comes first: its evaluation may be what was interrupted.
        first = self.counters.step + 1
        for step in range(self.counters.step, config.train.steps + 1):
            last = step == config.train.steps
            if step >= first:
                if step == first or (config.train.parity_every and (step - 1) % config.train.parity_every == 0):
                    self._check_parity(step - 1)
                self._step(step)
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

    def _build_learner(self) -> Learner:
        """The recipe's way to learn."""
        algorithm = self.config.train.algorithm
        if algorithm == "rejection":
            return RejectionSampling(self.policy)
        if algorithm == "policy_gradient":
            return PolicyGradient(self.policy, self._reference)
        return PreferenceOptimization(self.policy, self._reference)

    def _reference(self) -> PreTrainedModel:
        """A frozen copy of the policy RL starts from. On resume, the warm-up's checkpoint."""
        reference = copy.deepcopy(self.system.model)
        if self.counters.step:
            start = self.folder.path / "checkpoints" / "step_000000"
            verify_checkpoint(start)
            load_training_state(
                start, reference, build_optimizer(reference, lr=0.0, betas=(0.9, 0.999), weight_decay=0.0)
            )
        return reference.requires_grad_(False)

    def _evaluate(
        self, label: str, step: int, control: str | None = None, changes: dict[str, Any] | None = None
    ) -> None:
        name = f"heldout_{step:06d}" + (f"_{control}" if control else "")
        # The metrics row is written last: where it stands, the evaluation is whole.
        done = any(row["phase"] == "evaluate" and row["step"] == step for row in self.folder.read_metrics())
        if control is not None:
            done = (self.folder.path / "evaluations" / f"{name}.summary.json").exists()
        if done or not self.config.evaluate.tasks:
            return
        self.show.phase("evaluate")
        summary: Summary = evaluate_policy(
            self.system,
            self.folder,
            name=name,
            label=label,
            step=step,
            num_tasks=self.config.evaluate.tasks,
            changes=changes,
        )
        row = summary.row("all")
        if control is None:
            values = record({"evaluate/success": Mean(row.success), "evaluate/tool_calls": Mean(row.tool_calls)})
            self.folder.append_metrics(step, "evaluate", values)
        self.show.note(f"held-out success {label}: {row.success:.3f} [{row.low:.3f}, {row.high:.3f}] on {row.n} tasks")

    def _check_parity(self, step: int) -> None:
        """Sampler and trainer score the same fresh tokens after step `step`; raises TrainingError when they are too far
        apart."""
        self.show.phase("rollout")
        parity = run_parity_gate(self.system, step=step)
        text = (
            f"parity before step {step + 1}: {parity.num_tokens} tokens, mean {parity.mean:.2g}, largest "
            f"{parity.max:.2g} nats, "
            f"k3 {parity.k3:.2g}, effective share {parity.effective_share:.6f}"
        )
        self.folder.append_event("parity", text)
        self.show.note(text)

    def _step(self, step: int) -> None:
        """One RL step: rollout, credit, optimizer, new version, records."""
        self.show.phase("rollout")
        first = first_rl_task(self.config) + self.counters.tasks
        sampled = sample_groups(self.system, step=step, first_task=first, with_greedy=self._needs_greedy())
        metrics = compute_rollout_metrics(sampled) | compute_diversity_metrics(sampled.groups)
        self.show.phase("train")
        account = open_account(
            self.folder.path,
            self.config,
            step=step,
            version=self.counters.version,
            groups=sampled.groups,
            kept=sampled.kept,
            over_budget=sampled.over_budget,
            retried=sampled.retried,
        )
        before = compute_checksums(self.system.model)
        # Dynamic sampling may find nothing to learn from within its budget: the policy then stays as it is.
        learned = Learned(metrics={}, advantages=None)
        if sampled.kept:
            learned = self.learner.learn(sampled.kept, step, sampled.greedy_rewards, account)
        else:
            account([], [])
        metrics["train/changed_tensors"] = Sum(count_changed(before, compute_checksums(self.system.model)))
        version = self.counters.version + 1
        self.system.engine.adopt(version)
        self.counters = replace(
            self.counters,
            step=step,
            version=version,
            optimizer_steps=self.policy.optimizer_steps,
            tasks=self.counters.tasks + sampled.num_tasks,
            credit=self.learner.state_dict(),
        )
        trajectories, decode = self.folder.path / "trajectories", self.system.tokenizer.decode
        save_group_batch(trajectories, f"step_{step:06d}", sampled.groups, advantages=learned.advantages, decode=decode)
        for suffix, others in (("greedy", sampled.greedy), ("retried", sampled.retried)):
            if others:
                save_group_batch(trajectories, f"step_{step:06d}_{suffix}", others, advantages=None, decode=decode)
        values = record({**metrics, **learned.metrics})
        self.folder.append_metrics(step, "train", values)
        self.show.update(step, values)
        alarms = describe_alarms(values, self.config)
        for alarm in alarms:
            if alarm not in self.alarms:
                self.folder.append_event("alarm", f"step {step}: {alarm}")
                self.show.note(f"step {step}: {alarm}")
        self.alarms = alarms

    def _needs_greedy(self) -> bool:
        """Whether credit compares with a greedy attempt."""
        return (
            self.config.train.algorithm == "policy_gradient"
            and "greedy_reward" in build_credit_method(self.config).method.needs
        )

    def _checkpoint(self) -> None:
        with checkpoint_writer(self.folder.path, self.counters.step) as temporary:
            save_training_state(
                temporary,
                self.system.model,
                self.system.tokenizer,
                self.policy.optimizer,
                self.counters,
                self.learner.companions,
            )
        prune(self.folder.path, keep=self.config.train.keep_checkpoints, always={0})
