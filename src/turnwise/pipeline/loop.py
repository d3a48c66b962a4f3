"""Takes groups from draw to outcome: opened, rolled out, annotated, stored, admitted, then trained or dropped for a
reason.

Everything happens on one event loop; the trainer computes on its own thread. The gate decides which groups may start
and which train next, the journal records every decision before its effect. Synchronous training is the case of
staleness 0: no group may start while the trainer has a batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from turnwise.algorithms.advantages import is_informative
from turnwise.config.rollout import DynamicSamplingSection
from turnwise.core.errors import EnvironmentFault
from turnwise.core.events import GroupEnds, Note
from turnwise.core.metrics import Metric, Sum, merge, record
from turnwise.core.paths import unfold_groups
from turnwise.core.protocols import Recorder, WeightSync
from turnwise.core.roles import count_members, learns, split_roles
from turnwise.core.seeds import derive_seed
from turnwise.core.types import Draw, DropReason, Invalid, TrajectoryGroup
from turnwise.credit.shaping import read_metric
from turnwise.curriculum.value import choose_refill
from turnwise.pipeline.metrics import compute_rollout_metrics
from turnwise.pipeline.source import Drawn, TaskSource
from turnwise.pipeline.stalls import StallWatch, describe_stall, find_waits
from turnwise.pipeline.steps import StepTrainer, Taken
from turnwise.pipeline.utilisation import Utilisation
from turnwise.rollout.gate import Batch, Gate, Wait
from turnwise.rollout.limits import is_too_long
from turnwise.rollout.meter import Meter
from turnwise.rollout.workers import GroupStream
from turnwise.store.groups import GroupStore
from turnwise.store.journal import DrawRecord, Journal
from turnwise.sync.publication import check_receipt

LATE_POLL_S = 0.1
"""Seconds between checks whether an overdue group has enough finished members to be cut."""

Annotate = Callable[[TrajectoryGroup], Awaitable[tuple[TrajectoryGroup, dict[str, Metric]]]]
AfterStep = Callable[[int], Awaitable[Mapping[str, Metric] | None]]
"""Runs what is due after a step; its metrics (None: no metrics) are added to the next step's."""


@dataclass(slots=True, kw_only=True)
class _Clock:
    """Accounts for the time between two steps."""

    since: float
    """Time at which the trainer became idle."""
    collecting: float
    """Time at which collecting the groups of this step began: when the trainer became idle or, if rollouts continue
    during a step, when the previous batch was taken."""
    engine_busy_s: float
    """The engine's busy seconds at that time."""
    metrics: dict[str, Metric] = field(default_factory=dict)
    """Metrics of annotators since then."""


def _start_clock(engine: Meter) -> _Clock:
    now = time.perf_counter()
    return _Clock(since=now, collecting=now, engine_busy_s=engine.busy_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """A recipe's options for moving groups."""

    tasks_per_step: int
    group_size: int
    max_staleness: int
    late: Literal["wait", "cut", "drop"]
    """What happens to a group that holds up a batch (`schedule.late`)."""
    dynamic_sampling: DynamicSamplingSection
    seed: int


class Pipeline:
    """Moves groups through the run. `run` continues until a number of steps is done."""

    def __init__(
        self,
        settings: PipelineSettings,
        *,
        source: TaskSource,
        gate: Gate,
        stream: GroupStream,
        engine: Meter,
        annotate: Annotate | None,
        steps: StepTrainer,
        sync: WeightSync,
        store: GroupStore,
        journal: Journal,
        recorder: Recorder,
        decode: Callable[[Sequence[int]], str],
        waiting: Sequence[TrajectoryGroup] = (),
        dropped: Sequence[tuple[TrajectoryGroup, DropReason]] = (),
    ) -> None:
        """`waiting` and `dropped` are the finished groups of a continued run: the gate holds the former."""
        self.settings = settings
        self._source = source
        self._gate = gate
        self._stream = stream
        self._engine = engine
        self._annotate = annotate
        self._steps = steps
        self._sync = sync
        self._store = store
        self._journal = journal
        self._recorder = recorder
        self._decode = decode
        self._waiting = {group.draw.index: group for group in waiting}
        self._dropped = list(dropped)
        """Groups dropped since the last batch was taken."""
        self._judged = list(waiting)
        """Groups finished since a batch was taken, or longer ago if they were too few to judge: how many of their
        members failed decides whether the run continues."""
        self._given_up: set[int] = set()
        """Open draws that are dropped when their members have ended."""
        self._task_indices = {draw: record.task_index for draw, record in journal.state.draws.items()}
        self._next: asyncio.Task[TrajectoryGroup] | None = None
        self._storing: set[asyncio.Task[tuple[TrajectoryGroup, str | None]]] = set()
        """Complete groups being annotated and written to disk while others are still rolled out."""
        self._training: asyncio.Task[None] | None = None
        self._last_step = 0
        self._taken_step = steps.step
        self._clock = _start_clock(engine)
        self._utilisation = Utilisation(engine)
        self._stalls = StallWatch()

    async def run(self, last_step: int, after_step: AfterStep) -> None:
        """Train until step `last_step` is done; `after_step` is awaited after each publication, before the next batch.

        Raises what a rollout, an annotator, the trainer or a publication raised; everything that still runs is then
        ended.
        """
        self._last_step = last_step
        self._clock = _start_clock(self._engine)
        self._utilisation = Utilisation(self._engine)
        try:
            # Groups that another process stored without living to drop them.
            for group in [*self._waiting.values()]:
                if (reason := self._why_dropped(group)) is not None:
                    self._drop(self._waiting.pop(group.draw.index), reason)
            # The last evaluation may take long, and may be the one that ends the run.
            while self._steps.step < self._last_step or self._training is not None:
                if self._training is None or self.settings.max_staleness:
                    self._open_groups()
                await self._wait(self._take_batch(after_step))
        finally:
            await self._end()

    def end_after(self, step: int) -> None:
        """Make step `step`, which is done, the last one. Call it from `after_step`."""
        self._last_step = step

    def _open_groups(self) -> None:
        """Start as many groups as the gate and the budget of draws allow."""
        is_refill, num_begun = self._refills_by_value, self._source.num_waiting
        if is_refill and self._is_sampling:
            return
        if is_refill and not num_begun:
            self._choose_refill()
        drawn: list[Drawn] = []
        while not self._is_exhausted and self._gate.may_open():
            if is_refill and num_begun and not self._source.num_waiting:
                break  # another process had chosen this refill; the next one is chosen when it has been sampled
            drawn.append(self._source.next())
            self._gate.open(drawn[-1].draw.index)
        self._start(drawn)
        if self._is_exhausted and len(self._gate.outstanding) < self.settings.tasks_per_step:
            self._gate.close()

    def _start(self, drawn: Sequence[Drawn]) -> None:
        version = self._engine.version
        draws: list[Draw] = []
        records: list[DrawRecord] = []
        for each in drawn:
            draw, attempt = each.draw, each.draw.attempt
            if each.opened_version != version:
                attempt += each.opened_version is not None
                records.append(
                    DrawRecord(
                        draw=draw.index, task_index=each.task_index, version=version, attempt=attempt, pool=each.pool
                    )
                )
            draws.append(replace(draw, attempt=attempt))
            self._task_indices[draw.index] = each.task_index
        if records:
            self._journal.opened(*records)
        for draw in draws:
            self._stream.start(draw, version=version)

    @property
    def _num_filtered(self) -> int:
        return sum(reason is DropReason.FILTERED_GROUP for _, reason in self._dropped)

    @property
    def _is_sampling(self) -> bool:
        return bool(self._stream.num_open or self._stream.num_complete or self._storing)

    @property
    def _is_exhausted(self) -> bool:
        """Return whether no further group can train: in the remaining steps, or within this batch's budget of draws."""
        settings = self.settings
        if len(self._gate.outstanding) >= (self._last_step - self._taken_step) * settings.tasks_per_step:
            return True
        dynamic = settings.dynamic_sampling
        if not dynamic.metric:
            return False
        budget = dynamic.max_batches * settings.tasks_per_step
        if settings.max_staleness or dynamic.refill == "value":
            # Groups of later steps are under way too, or are chosen in rounds: what is left cannot fill a batch.
            return self._num_filtered > budget - settings.tasks_per_step
        # Groups under way count: whether two are filtered at once or one after the other opens no other number.
        return self._num_filtered + len(self._gate.outstanding) >= budget

    @property
    def _refills_by_value(self) -> bool:
        """Return whether tasks of this step are sampled again; they are chosen when all its groups have been seen."""
        return self.settings.dynamic_sampling.refill == "value" and self._num_filtered > 0

    def _choose_refill(self) -> None:
        settings = self.settings
        groups = sorted([*self._waiting.values(), *(group for group, _ in self._dropped)], key=lambda g: g.draw.index)
        budget = settings.dynamic_sampling.max_batches * settings.tasks_per_step - len(groups)
        count = min(settings.tasks_per_step - len(self._waiting), budget)
        if count > 0 and not self._is_exhausted:
            seed = derive_seed(self.settings.seed, "refill", self._taken_step + 1, len(groups))
            indices = [self._task_indices[group.draw.index] for group in groups]
            max_reward = settings.dynamic_sampling.max_reward
            self._source.repeat(choose_refill(groups, indices, count, max_reward=max_reward, seed=seed))

    def _take_batch(self, after_step: AfterStep) -> float | None:
        """Start training if a batch is ready. Otherwise returns the seconds until patience with late groups ends, None
        if it never does."""
        now = time.monotonic()
        for draw in self._gate.overdue(now, self._stream.count_ended()):
            if self.settings.late == "drop":
                self._given_up.add(draw)
            self._stream.cut(draw)
        decision = self._gate.pick(now)
        if self._training is None:
            if isinstance(decision, Batch):
                self._begin_training(decision.draws, after_step)
                return None
            if self._is_exhausted and not self._gate.outstanding:
                self._begin_training((), after_step)
                return None
            self._utilisation.switch_trainer(decision.reason)
        overdue_at = decision.overdue_at_s if isinstance(decision, Wait) else None
        return None if overdue_at is None else max(overdue_at - now, LATE_POLL_S)

    def _begin_training(self, draws: Sequence[int], after_step: AfterStep) -> None:
        self._gate.train_begins(draws)
        self._gate.reopen()
        self._taken_step += 1
        self._journal.taken(self._taken_step, draws)
        taken = Taken(
            step=self._taken_step,
            groups=tuple(self._waiting.pop(draw) for draw in draws),
            dropped=tuple(sorted(self._dropped, key=lambda each: each[0].draw.index)),
        )
        self._source.settle([*draws, *(group.draw.index for group, _ in self._dropped)])
        self._dropped = []
        self._utilisation.switch_trainer("training")
        if len(self._judged) >= self.settings.tasks_per_step:
            self._judged = []
        self._training = asyncio.create_task(self._train(taken, after_step))

    async def _train(self, taken: Taken, after_step: AfterStep) -> None:
        """Run one step: train, publish, record."""
        clock, self._clock = self._clock, _start_clock(self._engine)
        began = self._clock.since
        metrics, report = await self._steps.train(taken)
        version = self._steps.version
        self._journal.trained(taken.step, version=version, sums=report.sums)
        published = time.perf_counter()
        self._utilisation.switch_trainer("publishing")
        receipt = await self._sync.publish(version)
        check_receipt(receipt, report.sums, version)
        ended = time.perf_counter()
        self._gate.publish(version)
        self._utilisation.switch_trainer("after_step")
        metrics |= compute_rollout_metrics(taken, seconds=began - clock.collecting) | clock.metrics
        busy_s = self._engine.busy_s - clock.engine_busy_s
        metrics |= {
            "schedule/trainer_idle_seconds": Sum(began - clock.since),
            "schedule/engine_idle_seconds": Sum(max(0.0, ended - clock.since - busy_s)),
            "schedule/publish_seconds": Sum(ended - published),
            "schedule/restarted_tokens": Sum(receipt.num_restarted),
            "schedule/outstanding_groups": Sum(len(self._gate.outstanding)),
            **self._utilisation.take_metrics(),
        }
        self._steps.record(taken, record(metrics))
        for group, reason in taken.dropped:
            self._tell(group, reason.value)
        for group in taken.groups:
            self._tell(group, "trained")
        if self.settings.max_staleness:
            self._open_groups()  # the engine has work while a checkpoint is written
        self._clock.metrics = merge(self._clock.metrics, await after_step(taken.step) or {})
        self._utilisation.switch_trainer("unfinished")
        self._clock.since, self._clock.engine_busy_s = time.perf_counter(), self._engine.busy_s
        if not self.settings.max_staleness:
            self._clock.collecting = self._clock.since

    def _tell(self, group: TrajectoryGroup, fate: str) -> None:
        rewards = tuple(group.rewards())
        self._recorder.record(GroupEnds(draw=group.draw.index, fate=fate, rewards=rewards, version=group.version))

    async def _wait(self, patience_s: float | None) -> None:
        """Wait until something happens: a group is complete or annotated, a step is done, or patience ends."""
        if self._next is None:
            self._next = asyncio.create_task(self._stream.next())
        pending: set[asyncio.Task[Any]] = {self._next, *self._storing}
        if self._training is not None:
            pending.add(self._training)
        if len(pending) == 1 and not self._is_sampling and not self._next.done():
            raise RuntimeError("no group is in progress and no batch can train; the gate and the source disagree")
        self._engine.explain_idle("tools" if self._stream.num_open else "annotators" if self._storing else "admission")
        limit_s = self._stalls.limit_s
        timeout_s = limit_s if patience_s is None else min(patience_s, limit_s)
        done, _ = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        self._warn_of_stall()
        if self._training in done:
            training, self._training = self._training, None
            training.result()
        if self._next in done:
            group, self._next = self._next.result(), None
            self._storing.add(asyncio.create_task(self._store_group(group)))
        for task in [task for task in self._storing if task in done]:
            self._storing.discard(task)
            self._finish(*task.result())

    def _warn_of_stall(self) -> None:
        """Report who waits for whom if nothing has moved for long."""
        ended = sum(self._stream.count_ended().values())
        counts = (self._engine.num_replies, ended, self._stream.num_open, len(self._storing), self._taken_step)
        is_working = self._training is not None
        stalled_s = self._stalls.look((*counts, self._steps.step), time.monotonic(), is_working=is_working)
        if stalled_s is None:
            return
        asking = {(session.group, session.name.split("/")[0]) for session in self._engine.open_sessions}
        members = {
            draw: {
                member: "the engine"
                if any(group.endswith(f"/{draw}") and name == str(member) for group, name in asking)
                else "its environment"
                if runs
                else "a rollout slot"
                for member, runs in unsettled.items()
            }
            for draw, unsettled in self._stream.list_unsettled().items()
        }
        decision = self._gate.pick(time.monotonic())
        reason = self._utilisation.trainer if is_working else getattr(decision, "reason", "a batch is ready")
        edges = find_waits(reason, decision.draws, members, storing=len(self._storing))
        self._recorder.record(Note(kind="alarm", text=describe_stall(stalled_s, edges)))

    async def _store_group(self, group: TrajectoryGroup) -> tuple[TrajectoryGroup, str | None]:
        """Annotate and store a group. Returns it with the digest of its files, None if it has no trajectory."""
        if self._annotate is not None:
            group, metrics = await self._annotate(group)
            for name, metric in metrics.items():
                before = self._clock.metrics.get(name)
                self._clock.metrics[name] = metric if before is None else before.merge(metric)  # type: ignore[arg-type]
        if not group.trajectories and not group.discarded:
            return group, None
        # Text is decoded here, because a tokenizer serves one thread; files take milliseconds and are written in
        # another thread.
        return group, await asyncio.to_thread(self._store.prepare(group, self._decode))

    def _finish(self, group: TrajectoryGroup, digest: str | None) -> None:
        """Admit a stored group, or drop it if it cannot train or teaches nothing."""
        draw = group.draw.index
        if digest is not None:
            self._journal.finished(draw, digest)
        reason = self._why_dropped(group)
        if reason is None:
            self._gate.finish(draw)
            self._waiting[draw] = group
        else:
            self._drop(group, reason)
        if reason is DropReason.TOO_LONG:
            self._leave_out(group)
        else:
            self._check_failures(group)

    def _leave_out(self, group: TrajectoryGroup) -> None:
        """Report which row has no room for a reply. Raises DataError if there are too many."""
        what = f"{self._source.name(self._task_indices[group.draw.index])}: {group.trajectories[0].error}"
        self._recorder.record(Note(kind="left_out", text=f"left out: {what}"))
        self._source.leave_out(self._task_indices[group.draw.index], what)

    def _drop(self, group: TrajectoryGroup, reason: DropReason) -> None:
        """Drop an outstanding group: it will not train."""
        self._journal.dropped(group.draw.index, reason, step=self._taken_step + 1)
        self._gate.leave(group.draw.index)
        if group.trajectories or group.discarded:
            self._dropped.append((group, reason))
        else:
            self._source.settle([group.draw.index])

    def _check_failures(self, group: TrajectoryGroup) -> None:
        """Raise EnvironmentFault if too many members failed in the groups finished since the last batch, judged from a
        batch's worth on. Failed groups are dropped first: a continued run draws others."""
        self._judged.append(_fail_without_baseline(group) if self._steps.needs_baseline else group)
        if len(self._judged) < self.settings.tasks_per_step:
            return
        try:
            self._steps.failure.check(self._judged)
        except EnvironmentFault:
            for failed in [*self._waiting.values()]:
                if None in failed.rewards():
                    self._drop(self._waiting.pop(failed.draw.index), DropReason.INVALID)
            raise

    def _why_dropped(self, group: TrajectoryGroup) -> DropReason | None:
        if group.draw.index in self._given_up:
            self._given_up.discard(group.draw.index)
            return DropReason.LATE
        if is_too_long(group):
            return DropReason.TOO_LONG
        is_short = count_members(group) < self.settings.group_size
        if not group.trajectories or (is_short and self.settings.late == "drop"):
            return DropReason.LATE
        if self._steps.needs_baseline and _find_baseline_failure(group) is not None:
            return DropReason.NO_BASELINE
        name = self.settings.dynamic_sampling.metric
        if name:
            parts = unfold_groups(part for part in split_roles(group) if learns(part))
            if not any(is_informative(read_metric(part, name, "rollout.dynamic_sampling.metric")) for part in parts):
                return DropReason.FILTERED_GROUP
        return None

    async def _end(self) -> None:
        """Cancel what runs; a step that is training is awaited, because its thread cannot be stopped."""
        tasks = [task for task in (self._next, *self._storing, self._training) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._next, self._training = None, None
        self._storing.clear()
        await self._stream.close()


def _find_baseline_failure(group: TrajectoryGroup) -> str | None:
    """Return why credit cannot compare with the group's greedy attempt; None if that was scored."""
    if group.baseline is None:
        return "there is none"
    reward = group.baseline.reward
    return reward.reason if isinstance(reward, Invalid) else None


def _fail_without_baseline(group: TrajectoryGroup) -> TrajectoryGroup:
    """Return the group with Invalid rewards if its greedy baseline failed, so that it counts like failed members."""
    cause = _find_baseline_failure(group)
    if cause is None:
        return group
    reward = Invalid(reason=f"greedy baseline: {cause}", retryable=False)
    failed = (t if isinstance(t.reward, Invalid) else replace(t, reward=reward) for t in group.trajectories)
    return replace(group, trajectories=tuple(failed))
