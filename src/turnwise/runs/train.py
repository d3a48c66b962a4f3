"""The whole path: warm-up, evaluation, RL steps, evaluation, report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.events import Evaluated, Note, Phase, PhaseBegins, StepEnds
from turnwise.core.metrics import Mean, Metric, Sum, record
from turnwise.core.protocols import Recorder, RememberingTrainer, Trainer, WeightSync
from turnwise.environments.mixture import list_families
from turnwise.models.build import describe_device
from turnwise.models.threads import leave_cores_to_executors
from turnwise.pipeline.loop import Pipeline
from turnwise.pipeline.redo import continue_run, redo_steps
from turnwise.pipeline.steps import StepTrainer
from turnwise.reporting.console import Display
from turnwise.reporting.report import write_report
from turnwise.rollout.workers import GroupStream
from turnwise.runs.annotators import build_annotate, needs_baseline
from turnwise.runs.branches import with_branches
from turnwise.runs.build import System, build_system, find_device
from turnwise.runs.data_files import keep_data_files
from turnwise.runs.evaluate import evaluate_policy, load_run
from turnwise.runs.methods import check_methods, resolve_correction
from turnwise.runs.parity import check_parity
from turnwise.runs.recorders import FolderRecorder, Recorders, open_trackers
from turnwise.runs.renderer import load_checkpoint_tokenizer
from turnwise.runs.roles import keeps_past
from turnwise.runs.sft import first_rl_task, run_warmup
from turnwise.runs.start import build_parts, check_engines, check_start, prepare_new
from turnwise.store.checkpoint_folder import checkpoint_writer, latest_checkpoint, prune, sweep, verify_checkpoint
from turnwise.store.chosen_checkpoints import list_kept
from turnwise.store.groups import GroupStore
from turnwise.store.journal import Journal
from turnwise.store.run_folder import RunFolder


def run_train(
    config: RunConfig | None,
    *,
    resume: Path | None,
    display: bool,
    device: str | None = None,
    ranks: int | None = None,
    drive: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
) -> Path:
    """Train by the recipe, or continue the run folder `resume` by its own recipe (on `device` and on
    so many `ranks`; None: its own). Returns the run folder. A run that is refused at its start leaves none. `drive`
    runs the event loop.

    On the CPU a continued synchronous run writes the same metrics, bit for bit and timings apart, as one that was never
    stopped. Afterwards torch computes on one core in the calling thread. Raises TurnwiseError for everything a user can
    fix; what was written before stays.
    """
    if resume is not None:
        folder, config = load_run(resume, device=device, ranks=ranks)
        config = check_methods(config)
        find_device(config)
    elif config is not None:
        config = prepare_new(config)  # before there is a run folder
        folder = RunFolder.create(_new_path(config))
        folder.write_json("config.json", dump_resolved(config))
    else:
        raise ConfigError("nothing to train: name a recipe file, or a run folder with --resume")
    leave_cores_to_executors()
    run: Run | None = None
    try:
        # A resumed run keeps its tokenizer: one trained again, on texts that changed, would have other ids.
        checkpoint = latest_checkpoint(folder.path)
        tokenizer = load_checkpoint_tokenizer(config, checkpoint) if checkpoint else None
        system = build_system(config, training=True, tokenizer=tokenizer)
        with (
            Display(total_steps=config.train.steps, title=config.run.name, enabled=display) as show,
            open_trackers(config, folder, show) as listeners,
        ):
            run = Run(system, folder, listeners)
            drive(run.run())
    except BaseException:
        if resume is None and not (run and run.has_begun):
            folder.discard()
        raise
    return folder.path


def _new_path(config: RunConfig) -> Path:
    """A path in `run.output` that is free: name, seed and time, and a number where one second has several runs."""
    path = Path(config.run.output) / f"{config.run.name}-seed{config.run.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = (path, *(path.with_name(f"{path.name}-{number}") for number in range(2, 1000)))
    return next((each for each in paths if not each.exists()), path)


class Run:
    """One training run: the objects, and the order of its phases."""

    def __init__(
        self,
        system: System,
        folder: RunFolder,
        show: Recorder,
        *,
        trainer: Trainer | None = None,
        others: Mapping[str, RememberingTrainer] | None = None,
        sync: WeightSync | None = None,
    ) -> None:
        """`trainer`, `others` and `sync` None: those of the recipe (see `build_parts`)."""
        self.parts = parts = build_parts(system, trainer=trainer, others=others, sync=sync)
        self.system, self.trainer, self.sync = system, parts.trainer, parts.sync
        self.config = config = system.config
        self.folder = folder
        self.has_begun = False
        """Whether every check of the start has passed."""
        self.recorder = Recorders([FolderRecorder(folder), show])
        self.steps = StepTrainer(
            config,
            folder=folder,
            learners=parts.learners,
            trainer=self.trainer,
            failure=system.worker("train").failure,
            recorder=self.recorder,
            needs_baseline=needs_baseline(system),
            past=system.past,
        )
        if system.past is not None:
            system.past.run = folder.path

    async def run(self) -> None:
        """Every phase that is still to do."""
        try:
            await check_start(self.parts)
            if latest_checkpoint(self.folder.path) is None:
                await check_engines(self.system)
            self.has_begun = True
            await self._run()
        finally:
            await self.parts.close()

    async def _run(self) -> None:
        config = self.config
        sweep(self.folder.path)
        keep_data_files(self.folder, self.system.family)
        self._note("device", describe_device(self.system.model.device))
        for family in list_families(self.system.family):
            for text in getattr(family, "notes", ()):
                self._note("environment", text)
        if self.system.model_note:
            self._note("model", f"model: {self.system.model_note}")
        if self.system.renderer_note:
            self._note("renderer", f"renderer: {self.system.renderer_note}")
        if config.schedule.max_staleness:
            self._note("correction", resolve_correction(config).text)
        checkpoint = latest_checkpoint(self.folder.path)
        if checkpoint is None:
            self.folder.truncate(after_step=-1)
            await self._warm_up()
            await self._checkpoint()
        else:
            verify_checkpoint(checkpoint)
            self.steps.restore(await self.trainer.load(checkpoint))
            self.folder.truncate(after_step=self.steps.step)
            self._note("resumed", f"continuing after step {self.steps.step}")
        await self.sync.publish(self.steps.version)
        # The evaluation of the checkpoint's own step may be what was interrupted.
        await self._evaluate_if_due(self.steps.step)
        if self.steps.step < config.train.steps:
            await self._learn()
        if config.train.steps:
            for name, changes in config.evaluate.controls.items():
                await self._evaluate(f"after RL, {name}", config.train.steps, name, dict(changes))
        write_report(self.folder)

    async def _learn(self) -> None:
        """Redo what a crash took back, then move groups until the last step is done."""
        config, system = self.config, self.system
        store, journal = GroupStore(self.folder.path), Journal(self.folder.path)
        if config.train.parity_every == 0 or self.steps.step % config.train.parity_every == 0 or self.steps.step == 0:
            await self._check_parity(self.steps.step)
        try:
            await redo_steps(
                self.steps,
                sync=self.sync,
                store=store,
                journal=journal,
                recorder=self.recorder,
                after_step=self._after_step,
            )
            continued = continue_run(
                config,
                family=system.family,
                first_task=first_rl_task(config),
                steps=self.steps,
                store=store,
                journal=journal,
                recorder=self.recorder,
            )
            self._begin("rollout")
            worker = system.worker("train")
            pipeline = Pipeline(
                config,
                source=continued.source,
                gate=continued.gate,
                stream=GroupStream(
                    with_branches(system, worker),
                    group_size=config.rollout.group_size,
                    overdraw=config.schedule.overdraw,
                ),
                engine=system.meter,
                annotate=build_annotate(system, self.trainer),
                steps=self.steps,
                sync=self.sync,
                store=store,
                journal=journal,
                recorder=self.recorder,
                decode=system.tokenizer.decode,
                waiting=continued.waiting,
                dropped=continued.dropped,
            )
            await pipeline.run(config.train.steps, self._after_step)
        finally:
            journal.close()

    async def _after_step(self, step: int) -> dict[str, Metric]:
        """What is due between two steps: a checkpoint, an evaluation, a parity gate. Returns how long they took."""
        train = self.config.train
        last = step == train.steps
        metrics: dict[str, Metric] = {}
        is_due = last or any(every and step % every == 0 for every in (train.checkpoint_every, train.keep_every))
        if is_due or (train.keep_best and self._evaluates(step)):
            began = time.perf_counter()
            await self._checkpoint()
            metrics["schedule/checkpoint_seconds"] = Sum(time.perf_counter() - began)
        began = time.perf_counter()
        await self._evaluate_if_due(step)
        if self._evaluates(step):
            metrics["schedule/evaluate_seconds"] = Sum(time.perf_counter() - began)
        if not last and train.parity_every and step % train.parity_every == 0:
            await self._check_parity(step)
        if not last:
            self._begin("rollout")
        return metrics

    def _begin(self, phase: Phase, total: int | None = None) -> None:
        self.recorder.record(PhaseBegins(phase=phase, total=total))

    def _note(self, kind: str, text: str) -> None:
        self.recorder.record(Note(kind=kind, text=text))

    async def _warm_up(self) -> None:
        self._begin("sft", total=self.config.sft.steps)

        def report(step: int, metrics: dict[str, Metric]) -> None:
            self.recorder.record(StepEnds(step=step, phase="sft", values=record(metrics)))

        await run_warmup(
            self.system, self.trainer, report, lambda task: self._note("left_out", f"left out: {task.why}")
        )

    def _evaluates(self, step: int) -> bool:
        """Whether an evaluation is due after RL step `step`."""
        every = self.config.evaluate.every
        return step in (0, self.config.train.steps) or bool(every and step % every == 0)

    async def _evaluate_if_due(self, step: int) -> None:
        if step == 0:
            label = "after SFT" if self.config.sft.steps else "before training"
        else:
            label = "after RL" if step == self.config.train.steps else f"step {step}"
        if self._evaluates(step):
            await self._evaluate(label, step)

    async def _evaluate(
        self, label: str, step: int, control: str | None = None, changes: dict[str, Any] | None = None
    ) -> None:
        name = f"heldout_{step:06d}" + (f"_{control}" if control else "")
        # The metrics row is written last: where it exists, the evaluation is whole.
        done = any(row["phase"] == "evaluate" and row["step"] == step for row in self.folder.read_metrics())
        if control is not None:
            done = (self.folder.path / "evaluations" / f"{name}.summary.json").exists()
        if done or not self.config.evaluate.tasks:
            return
        self._begin("evaluate")
        summary = await evaluate_policy(
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
            metrics = {"evaluate/success": Mean(row.success), "evaluate/tool_calls": Mean(row.tool_calls)}
            if row.reward is not None:
                metrics["evaluate/reward"] = Mean(row.reward)
            metrics |= {f"evaluate/reward_{name}": Mean(value) for name, value in row.parts.items()}
            values = record(metrics)
            self.recorder.record(StepEnds(step=step, phase="evaluate", values=values))
        self.recorder.record(Evaluated(step=step, label=label, summary=summary.to_json()))

    async def _check_parity(self, step: int) -> None:
        """Sampler and trainer score the same fresh tokens after step `step`; raises TrainingError if they differ by
        more than their dtype explains."""
        self._begin("rollout")
        self._note("parity", await check_parity(self.system, self.trainer, step=step))

    async def _checkpoint(self) -> None:
        with checkpoint_writer(self.folder.path, self.steps.step) as temporary:
            await self.trainer.save(temporary, self.steps.counters())
        if not keeps_past(self.config):
            train = self.config.train
            kept = list_kept(self.folder.path, best=train.keep_best, every=train.keep_every)
            prune(self.folder.path, keep=train.keep_checkpoints, always={0}, also=kept)
