"""Continues a run: steps after the checkpoint are redone from stored groups, and unfinished groups continue.

Nothing is sampled to redo a step, so on the CPU the weights equal those from before the crash, bit for bit; the
journal's checksums show it. If they differ (another machine, another number of threads), later steps are not redone,
and groups sampled by their weights are dropped as `lost_version`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace

from turnwise.core.errors import StoreError, TrainingError
from turnwise.core.events import Note
from turnwise.core.metrics import record
from turnwise.core.protocols import EnvironmentFamily, Recorder, WeightSync
from turnwise.core.types import Draw, DropReason, Task, TrajectoryGroup
from turnwise.curriculum.curriculum import DrawnTask
from turnwise.environments.draws import LeftOut, name_task, try_task
from turnwise.pipeline.metrics import compute_rollout_metrics
from turnwise.pipeline.source import Drawn, TaskSource
from turnwise.pipeline.steps import StepTrainer, Taken
from turnwise.rollout.gate import AdmissionRule, Gate
from turnwise.store.groups import GroupStore
from turnwise.store.journal import DrawRecord, Journal, JournalState
from turnwise.sync.publication import check_receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The state from which a run continues."""

    gate: Gate
    source: TaskSource
    waiting: list[TrajectoryGroup] = field(default_factory=list)
    """Finished groups held by the gate."""
    dropped: list[tuple[TrajectoryGroup, DropReason]] = field(default_factory=list)
    """Groups dropped since the last step."""


async def redo_steps(
    steps: StepTrainer,
    *,
    sync: WeightSync,
    store: GroupStore,
    journal: Journal,
    recorder: Recorder,
    after_step: Callable[[int], Awaitable[object]],
) -> None:
    """Train again every step that the journal records after the step of `steps`.

    Stops if a group cannot be read or the weights differ: later steps are then taken back. A step that failed before
    and fails again is given up, and its groups are dropped. Raises TrainingError if a step fails that did not fail
    before.
    """
    state = journal.state
    if steps.curriculum is not None:
        for record_ in state.draws.values():
            steps.curriculum.note(record_.draw, DrawnTask(task=record_.task_index, pool=record_.pool))
    for step in sorted(number for number in state.taken if number > steps.step):
        try:
            groups = tuple(store.load(draw, digest=state.draws[draw].digest) for draw in state.taken[step])
            dropped = tuple(_load_dropped(store, journal, step))
        except StoreError as cause:
            journal.rewound(step - 1)
            recorder.record(Note(kind="redo", text=f"step {step} cannot be redone and is rolled back: {cause}"))
            return
        taken = Taken(step=step, groups=groups, dropped=dropped)
        counters = steps.counters()
        try:
            metrics, report = await steps.train(taken)
        except TrainingError as cause:
            if step in state.trained:
                raise
            steps.give_up(step, counters)
            journal.rewound(step - 1)
            for group, reason in (*dropped, *((group, DropReason.FAILED_STEP) for group in groups)):
                journal.dropped(group.draw.index, reason, step=step)
            recorder.record(Note(kind="redo", text=f"step {step} failed again; its groups are dropped: {cause}"))
            return
        before = state.trained.get(step)
        differs = before is not None and dict(before.sums) != dict(report.sums)
        if differs:
            journal.rewound(step - 1)
            for group, reason in dropped:
                journal.dropped(group.draw.index, reason, step=step)
            # In this step, so that no later crash forgets which groups the other weights sampled.
            lost = _drop_lost(store, journal, newest=steps.version - 1, step=step, but=state.taken[step])
            steps.account(lost, step=step, version=steps.version - 1)
            taken = replace(taken, dropped=(*dropped, *lost))
            journal.taken(step, [group.draw.index for group in groups])
            text = f"step {step} gives other weights on this machine than before; later steps are sampled again"
            recorder.record(Note(kind="redo", text=text))
        if before is None or differs:
            journal.trained(step, version=steps.version, sums=report.sums)
        check_receipt(await sync.publish(steps.version), report.sums, steps.version)
        steps.record(taken, record(metrics | compute_rollout_metrics(taken, seconds=0.0)))
        await after_step(step)
        if differs:
            return


def _drop_lost(
    store: GroupStore, journal: Journal, *, newest: int, step: int, but: Collection[int] = ()
) -> list[tuple[TrajectoryGroup, DropReason]]:
    """Drop the waiting groups, except draws `but`, with a token of a later version than `newest`: other weights carry
    that version from here on. Groups that cannot be read are left alone."""
    lost = []
    for waiting in journal.state.waiting:
        with contextlib.suppress(StoreError):
            group = store.load(waiting.draw, digest=waiting.digest)
            if waiting.draw not in but and _newest_version(group) > newest:
                journal.dropped(waiting.draw, DropReason.LOST_VERSION, step=step)
                lost.append((group, DropReason.LOST_VERSION))
    return lost


def _newest_version(group: TrajectoryGroup) -> int:
    """Return the newest version that sampled a token of the group, or that was served when it was opened."""
    trajectories = (*group.trajectories, *(each.trajectory for each in group.discarded))
    completions = [turn.completion for trajectory in trajectories for turn in trajectory.turns]
    versions = [max(c.version_first, c.version_last, *(() if c.versions is None else c.versions)) for c in completions]
    return int(max([group.version, *versions]))


def _load_dropped(store: GroupStore, journal: Journal, step: int) -> list[tuple[TrajectoryGroup, DropReason]]:
    """Load the groups that were dropped while `step` was collected. Raises StoreError if one cannot be read."""
    records = [record for record in journal.state.dropped if record.step == step and record.reason is not None]
    return [
        (store.load(record.draw, digest=record.digest), record.reason)
        for record in records
        if record.digest is not None and record.reason is not None
    ]


def continue_run(
    rule: AdmissionRule,
    *,
    max_left_out: float,
    family: EnvironmentFamily,
    first_task: int,
    steps: StepTrainer,
    store: GroupStore,
    journal: Journal,
    recorder: Recorder,
) -> Continued:
    """Return what waits, what must be sampled again, and the gate that holds it by `rule`; for a new run, all of it
    empty.

    `max_left_out` is the share of tasks that may be left out (`environment.max_left_out`)."""
    state, version = journal.state, steps.version

    def leave_out(task: LeftOut) -> None:
        journal.left_out(task.index, task.why)
        recorder.record(Note(kind="left_out", text=f"left out: {task.why}"))

    source = TaskSource(
        family,
        next_draw=state.next_draw,
        next_task=first_task if steps.curriculum is not None else max(first_task, state.next_task),
        leave_out=leave_out,
        curriculum=steps.curriculum,
        num_left_out=len(state.left_out) + sum(each.reason is DropReason.TOO_LONG for each in state.dropped),
        max_left_out=max_left_out,
    )
    waiting: dict[int, TrajectoryGroup] = {}
    try:
        dropped = _load_dropped(store, journal, steps.step + 1)
    except StoreError:
        journal.rewound(steps.step)  # all of them wait again and are judged again
        dropped = []
    dropped += _drop_lost(store, journal, newest=version, step=steps.step + 1)
    state = journal.state
    again: list[DrawRecord] = list(state.open)
    for record_ in state.waiting:
        try:
            waiting[record_.draw] = store.load(record_.draw, digest=record_.digest)
        except StoreError:
            again.append(record_)
    for record_ in sorted(again, key=lambda each: each.draw):
        lost = record_.digest is not None
        task = _try_again(family, record_)
        if isinstance(task, LeftOut):
            journal.dropped(record_.draw, DropReason.LOST_TASK, step=steps.step + 1)
            leave_out(task)
            source.count_left_out(task.why)
            continue
        draw = Draw(index=record_.draw, task=task, attempt=record_.attempt)
        # The same weights sample the same tokens again; a group that was stored and is lost gets a new name.
        opened_version = -1 if lost else record_.version
        source.put_back(
            Drawn(draw=draw, task_index=record_.task_index, opened_version=opened_version, pool=record_.pool)
        )
    while True:
        try:
            gate = Gate(rule, version, {draw: group.version for draw, group in waiting.items()})
            break
        except ValueError:
            oldest = min(waiting.values(), key=lambda group: (group.version, group.draw.index))
            del waiting[oldest.draw.index]
            journal.dropped(oldest.draw.index, DropReason.TOO_STALE, step=steps.step + 1)
            dropped.append((oldest, DropReason.TOO_STALE))
    _recall(source, journal.state, step=steps.step)
    return Continued(gate=gate, source=source, waiting=list(waiting.values()), dropped=dropped)


def _recall(source: TaskSource, state: JournalState, *, step: int) -> None:
    """Tell the source of tasks what was drawn before `step` was done."""
    source.recall(
        ((record.draw, DrawnTask(task=record.task_index, pool=record.pool)) for record in state.draws.values()),
        playing={
            record.draw
            for record in state.draws.values()
            if record.step is None or (record.step > step and record.digest is not None)
        },
        left_out=[
            *state.left_out,
            *(each.task_index for each in state.dropped if each.reason is DropReason.TOO_LONG),
        ],
    )


def _try_again(family: EnvironmentFamily, record_: DrawRecord) -> Task | LeftOut:
    """Build the task of a draw that another process opened, or return why it can no longer be built."""
    try:
        return try_task(family, "train", record_.task_index)
    except IndexError as end:
        return LeftOut(index=record_.task_index, why=f"{name_task(family, 'train', record_.task_index)}: {end}")
