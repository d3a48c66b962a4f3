"""The whole path: warm-up, evaluation, RL steps, evaluation, report."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnwise.building.cores import describe_crowding
from turnwise.building.curriculum import build_curriculum
from turnwise.building.schedule import build_rule
from turnwise.building.stepping import read_pipeline_settings, read_step_settings
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import StoreError
from turnwise.core.events import Note, Phase, PhaseBegins, StepEnds
from turnwise.core.holding import hear
from turnwise.core.metrics import Metric, Sum, record
from turnwise.core.protocols import Recorder, RememberingTrainer, Trainer, WeightSync
from turnwise.environments.draws import LeftOut
from turnwise.models.build import describe_device
from turnwise.models.threads import leave_cores_to_executors
from turnwise.pictures.store import open_pictures
from turnwise.pipeline.loop import Pipeline
from turnwise.pipeline.redo import continue_run, redo_steps
from turnwise.pipeline.steps import StepTrainer
from turnwise.reporting.console import Display
from turnwise.reporting.report import write_report
from turnwise.rollout.workers import GroupStream
from turnwise.runs.annotators import build_annotate
from turnwise.runs.branches import with_branches
from turnwise.runs.build import System, build_system
from turnwise.runs.continuing import Continuation, OpenRun, open_run, write_changes
from turnwise.runs.data_files import keep_data_files
from turnwise.runs.evaluations import Evaluations
from turnwise.runs.judges import remember_costs
from turnwise.runs.parity import check_parity
from turnwise.runs.pretraining import find_stopped, load_stopped, run_pretraining
from turnwise.runs.process_notes import ProcessNotes
from turnwise.runs.recorders import FolderRecorder, Recorders, open_trackers
from turnwise.runs.renderer import load_checkpoint_tokenizer
from turnwise.runs.roles import keeps_past
from turnwise.runs.sft import first_rl_task, run_warmup
from turnwise.runs.start import build_parts, check_engines, check_start
from turnwise.store.advantages import forget_packed, pack_advantages
from turnwise.store.checkpoint_folder import checkpoint_writer, latest_checkpoint, prune, sweep, verify_checkpoint
from turnwise.store.chosen_checkpoints import list_kept
from turnwise.store.documents import forget_checkpoints
from turnwise.store.groups import GroupStore
from turnwise.store.journal import Journal, read_journal
from turnwise.store.run_folder import RunFolder

Announce = Callable[[Path, RunConfig], None]


def run_train(
    config: RunConfig | None,
    *,
    resume: Path | Continuation | None,
    display: bool,
    announce: Announce = lambda path, config: None,
    drive: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
) -> Path:
    """Train by the recipe, or continue a run. Returns the run folder. A run that is refused at its start leaves none.

    Args:
        config: the recipe; None where `resume` names a run folder.
        resume: a run folder to continue by its own recipe, or how to continue one.
        display: whether progress is shown on standard error.
        announce: told the run folder, which is this process's from then on, and its recipe, before anything long.
        drive: runs the event loop.

    On the CPU a continued synchronous run writes the same metrics, bit for bit and timings apart, as one that was never
    stopped. Afterwards torch computes on one core in the calling thread. Raises StoreError while another process writes
    the run, TurnwiseError for everything a user can fix; what was written before stays.
    """
    if isinstance(resume, Path):
        resume = Continuation(run=resume)
    leave_cores_to_executors()
    show = Display(total_steps=0, title="", enabled=display)
    with open_run(config, resume, tell=show.note) as opened:
        announce(opened.folder.path, opened.config)
        begun = [not opened.is_new]
        try:
            _train(opened, begun, display=display, drive=drive)
        except BaseException as error:
            if begun[0]:
                _record_end(opened, error)
            else:
                opened.folder.discard()
            raise
        return opened.folder.path


def _train(
    opened: OpenRun, begun: list[bool], *, display: bool, drive: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Train in an open run folder; `begun` says whether there is something to keep."""
    folder, config = opened.folder, opened.config
    # A resumed run keeps its tokenizer: one trained again, on texts that changed, would have other ids.
    checkpoint = latest_checkpoint(folder.path) or find_stopped(folder.path)
    tokenizer = load_checkpoint_tokenizer(config, checkpoint) if checkpoint else None
    system = build_system(config, training=True, tokenizer=tokenizer, pictures=open_pictures(folder.path))
    notes = write_changes(opened)  # before trackers read the recipe
    with (
        Display(total_steps=config.train.steps, title=config.run.name, enabled=display) as show,
        open_trackers(config, folder, show) as listeners,
    ):
        for note in notes:
            show.note(note)
        run = Run(system, folder, listeners, check=opened.lock.check)
        try:
            drive(run.run())
        finally:
            begun[0] |= run.has_begun


def _record_end(opened: OpenRun, error: BaseException) -> None:
    """Note in the run folder why its process ends, where it may still be written."""
    is_stop = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
    text = "" if is_stop else " ".join(f"{type(error).__name__}: {error}".split())
    with suppress(StoreError):
        opened.lock.check()
        opened.folder.append_event("stopped" if is_stop else "error", text)


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
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`trainer`, `others` and `sync` None: those of the recipe (see `build_parts`). `check` is called before each
        decision and raises StoreError where the folder is another process's."""
        warms_up = latest_checkpoint(folder.path) is None
        self.parts = parts = build_parts(system, trainer=trainer, others=others, sync=sync, warms_up=warms_up)
        self.system, self.trainer, self.sync = system, parts.trainer, parts.sync
        self.config = system.config
        self.folder = folder
        self._check = check
        self.has_begun = False
        """Whether every check of the start has passed."""
        self.recorder = ProcessNotes(Recorders([FolderRecorder(folder), show]))
        self.steps = StepTrainer(
            read_step_settings(system.resolved),
            folder=folder,
            learners=parts.learners,
            trainer=self.trainer,
            failure=system.worker("train").failure,
            recorder=self.recorder,
            needs_baseline=system.resolved.needs_baseline,
            past=system.past,
            curriculum=build_curriculum(system.config),
            options=dump_resolved(system.config),
        )
        if system.past is not None:
            system.past.run = folder.path
        remember_costs(system.judges, folder.read_metrics())
        self.evaluations = Evaluations(system, folder, self.recorder, check=check)
        self._ended_at: int | None = None
        """The step after which the selection set ended training; None where it did not."""

    async def run(self) -> None:
        """Every phase that is still to do."""
        with self.recorder.listen(), hear(lambda text: self._note("alarm", text)):
            try:
                await check_start(self.parts)
                if latest_checkpoint(self.folder.path) is None:
                    await check_engines(self.system)
                self.has_begun = True
                await self._run()
            finally:
                await self.evaluations.close()
                await self.parts.close()

    async def _run(self) -> None:
        config = self.config
        sweep(self.folder.path)
        for text in keep_data_files(self.folder, config, self.system.family):
            self._note("data", text)
        device = self.system.model.device
        self._note("device", describe_device(device))
        for text in describe_crowding(config, cores=os.cpu_count() or 1, device=device.type):
            self._note("process", text)
        for kind, text in self.system.notes:
            self._note(kind, text)
        if config.schedule.max_staleness:
            self._note("correction", self.system.resolved.correction.text)
        checkpoint = latest_checkpoint(self.folder.path)
        if checkpoint is None:
            await self._pretrain()
            await self._warm_up()
            await self._checkpoint()
            forget_checkpoints(self.folder.path)
        else:
            verify_checkpoint(checkpoint)
            self.steps.restore(await self.trainer.load(checkpoint))
            self.folder.truncate(after_step=self.steps.step)
            forget_packed(self.folder.path, after_step=self.steps.step)
            self._note("resumed", f"continuing after step {self.steps.step}")
        await self.sync.publish(self.steps.version)
        step = self.steps.step
        # The evaluation of the checkpoint's own step may be what was interrupted.
        await self.evaluations.resume(step)
        if self.evaluations.is_due(step):
            await self.evaluations.play(step)
        if step < config.train.steps and not await self.evaluations.ends_training(step):
            await self._learn()
        await self.evaluations.finish()
        if config.train.steps:
            for name, changes in config.evaluate.controls.items():
                await self.evaluations.play_control(name, dict(changes), step=self.steps.step)
        if text := self.evaluations.describe_choice():
            self._note("selection", text)
        write_report(self.folder)

    async def _learn(self) -> None:
        """Redo what a crash took back, then move groups until the last step is done."""
        config, system = self.config, self.system
        store, journal = GroupStore(self.folder.path), Journal(self.folder.path, check=self._check)
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
            if self._ended_at is not None:
                return
            continued = continue_run(
                build_rule(config),
                max_left_out=config.environment.max_left_out,
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
                read_pipeline_settings(system.resolved),
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

            async def after_step(step: int) -> dict[str, Metric]:
                metrics = await self._after_step(step)
                if self._ended_at is not None:
                    pipeline.end_after(step)
                return metrics

            await pipeline.run(config.train.steps, after_step)
        finally:
            journal.close()

    async def _after_step(self, step: int) -> dict[str, Metric]:
        """What is due between two steps: a checkpoint, an evaluation, a parity gate. Returns how long they took."""
        train = self.config.train
        last = step == train.steps
        metrics: dict[str, Metric] = {}
        is_due = last or any(every and step % every == 0 for every in (train.checkpoint_every, train.keep_every))
        evaluates = self.evaluations.is_due(step)
        if is_due or (evaluates and (train.keep_best or self.evaluations.is_beside)):
            began = time.perf_counter()
            await self._checkpoint()
            metrics["schedule/checkpoint_seconds"] = Sum(time.perf_counter() - began)
        began = time.perf_counter()
        if evaluates:
            await self.evaluations.play(step)
            if not last and await self.evaluations.ends_training(step):
                self._end_early(step)
            metrics["schedule/evaluate_seconds"] = Sum(time.perf_counter() - began)
        last |= self._ended_at is not None
        if not last and train.parity_every and step % train.parity_every == 0:
            await self._check_parity(step)
        if not last:
            self._begin("rollout")
        return metrics

    def _begin(self, phase: Phase, total: int | None = None) -> None:
        self.recorder.record(PhaseBegins(phase=phase, total=total))

    def _note(self, kind: str, text: str) -> None:
        self.recorder.record(Note(kind=kind, text=text))

    async def _pretrain(self) -> None:
        """Take the steps of continual pre-training that are still to do; forget what was recorded after them."""
        library, run = self.parts.library, self.folder.path
        done = await load_stopped(run, self.trainer) if library is not None else 0
        self.folder.truncate(after_step=-1, after_cpt=done)
        if library is None:
            return
        self._begin("cpt", total=self.config.cpt.steps)
        self._note("documents", library.note)
        if done:
            self._note("resumed", f"continuing after step {done} of continual pre-training")

        def report(step: int, metrics: dict[str, Metric]) -> None:
            self.recorder.record(StepEnds(step=step, phase="cpt", values=record(metrics)))

        await run_pretraining(self.config, library, self.trainer, run, done=done, report=report, check=self._check)

    async def _warm_up(self) -> None:
        self._begin("sft", total=self.config.sft.steps)
        for note in self.parts.lessons.notes if self.parts.lessons else ():
            self._note("warm-up", note)

        def report(step: int, metrics: dict[str, Metric]) -> None:
            self.recorder.record(StepEnds(step=step, phase="sft", values=record(metrics)))

        def leave_out(task: LeftOut) -> None:
            self._note("left_out", f"left out: {task.why}")

        def tell(text: str) -> None:
            self._note("warm-up", text)

        await run_warmup(self.system, self.trainer, report, self.parts.lessons, leave_out, tell)

    def _end_early(self, step: int) -> None:
        train, self._ended_at = self.config.train, step
        what = (
            "worse than the best before it" if train.patience_on == "decline" else "not better than the best before it"
        )
        self._note(
            "ended_early",
            f"training ends after step {step} of {train.steps}: on the tasks of evaluate.selection_tasks, "
            f"{train.patience} evaluations in a row were each {what} (train.patience={train.patience}, "
            f"train.patience_on={train.patience_on!r}); --resume with train.patience=0 goes on",
        )

    async def _check_parity(self, step: int) -> None:
        """Sampler and trainer score the same fresh tokens after step `step`; raises TrainingError if they differ by
        more than their dtype explains."""
        self._begin("rollout")
        self._note("parity", await check_parity(self.system, self.trainer, step=step))

    async def _checkpoint(self) -> None:
        self._check()
        with checkpoint_writer(self.folder.path, self.steps.step) as temporary:
            await self.trainer.save(temporary, self.steps.counters())
        if not keeps_past(self.config):
            train = self.config.train
            kept = list_kept(self.folder.path, best=train.keep_best, every=train.keep_every)
            kept |= self.evaluations.list_outstanding()
            prune(self.folder.path, keep=train.keep_checkpoints, always={0}, also=kept)
        GroupStore(self.folder.path).pack(self._list_settled)
        pack_advantages(self.folder.path, until=self.steps.step)

    def _list_settled(self) -> list[int]:
        """Draws whose fate a step until the checkpoint decided."""
        draws = read_journal(self.folder.path).draws.values()
        return [draw.draw for draw in draws if draw.step is not None and draw.step <= self.steps.step]
