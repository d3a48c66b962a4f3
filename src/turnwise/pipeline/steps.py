"""One RL step on given groups: score, assign, account, train, remember. A redone step runs the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnwise.batching.samples import list_outcomes, list_samples
from turnwise.config.roles import find_learner
from turnwise.core.batch import Assignment, Columns, NothingToTrain, StepReport, TrainingBatch
from turnwise.core.events import Note, StepEnds
from turnwise.core.metrics import Metric, Sum
from turnwise.core.protocols import Learner, Recorder
from turnwise.core.roles import learns, split_all, split_roles
from turnwise.core.types import DropReason, TrajectoryGroup
from turnwise.curriculum.curriculum import Curriculum
from turnwise.models.checksums import join_sums
from turnwise.pipeline.alarms import AlarmWatch, describe_alarms, describe_exceptions, describe_invalid
from turnwise.pipeline.diagnosis_watch import DiagnosisWatch
from turnwise.pipeline.judge_metrics import DriftWatch
from turnwise.pipeline.trainer_thread import TrainerThread
from turnwise.pipeline.truth_metrics import TruthWatch
from turnwise.rollout.past import SnapshotPool
from turnwise.rollout.workers import FailurePolicy
from turnwise.store.advantages import forget_packed, save_advantages
from turnwise.store.ledger import GroupAccount, account_batch, account_dropped, append_accounts
from turnwise.store.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Taken:
    """Groups on which one step trains, and those dropped while it was collected."""

    step: int
    groups: tuple[TrajectoryGroup, ...]
    dropped: tuple[tuple[TrajectoryGroup, DropReason], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """A recipe's options for one step."""

    roles: Mapping[str, str]
    """What speaks for each role (`config.roles`)."""
    max_staleness: int
    """Most versions by which a trained token may be older than the weights."""
    max_times: int | None
    """Most times that a token may train in a step; None is unlimited."""
    observations_train: bool = False
    """Whether tokens that were not sampled train too."""


class StepTrainer:
    """The state of training, and its steps."""

    def __init__(
        self,
        settings: StepSettings,
        *,
        folder: RunFolder,
        learners: Mapping[str, Learner],
        trainer: TrainerThread,
        failure: FailurePolicy,
        recorder: Recorder,
        needs_baseline: bool,
        past: SnapshotPool | None = None,
        curriculum: Curriculum | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`learners` by name, as in `trainer`; the first learner's name is empty. `curriculum` None: tasks are drawn in
        order. `options` is the resolved recipe, which diagnoses name; None diagnoses nothing."""
        self.settings = settings
        self.learners = learners
        self.trainer = trainer
        self.failure = failure
        self.past = past
        self.curriculum = curriculum
        self.needs_baseline = needs_baseline
        """Whether credit compares with a greedy attempt."""
        self.step = 0
        """Number of steps done."""
        self.version = 0
        self.optimizer_steps = 0
        self._folder = folder
        self._recorder = recorder
        self._alarms = AlarmWatch()
        self._drifts = DriftWatch()
        self._truths = TruthWatch()
        self._diagnosis = None if options is None else DiagnosisWatch(options, folder.read_metrics)
        self._faults: set[str] = set()
        """Kinds of faults in user code that were reported: each is reported once per run."""

    def counters(self) -> dict[str, Any]:
        """Return what a checkpoint must hold besides weights and moments."""
        others = [name for name in self.learners if name]
        return {
            "step": self.step,
            "optimizer_steps": self.optimizer_steps,
            "version": self.version,
            "credit": self.learners[""].state_dict(),
            **({"credit_of": {name: self.learners[name].state_dict() for name in others}} if others else {}),
            **({} if self.past is None else {"standings": self.past.standings.state_dict()}),
            **({} if self.curriculum is None else {"curriculum": self.curriculum.state_dict()}),
            **({"judges": judges} if (judges := self._drifts.state_dict()) else {}),
            **({"truth": truth} if (truth := self._truths.state_dict()) else {}),
        }

    def restore(self, counters: Mapping[str, Any]) -> None:
        """Restore what `counters` returned."""
        self.step, self.version = int(counters["step"]), int(counters["version"])
        self.optimizer_steps = int(counters["optimizer_steps"])
        for name, learner in self.learners.items():
            learner.load_state_dict(counters["credit_of"][name] if name else counters["credit"])
        if self.past is not None:
            self.past.standings.load_state_dict(counters["standings"])
        if self.curriculum is not None:
            self.curriculum.load_state_dict(counters["curriculum"])
        self._drifts.load_state_dict(counters.get("judges", {}))
        self._truths.load_state_dict(counters.get("truth", {}))

    async def train(self, taken: Taken) -> tuple[dict[str, Metric], StepReport]:
        """Take the step: sampled tokens are on the ledger before a weight changes.

        Every learner trains on the groups of its roles, in one step: all change, or none. Without groups the weights
        stay the same but count as a new version; so do those of one of several learners for which there is nothing to
        train. Raises LedgerError or TrainingError with the weights unchanged.
        """
        # Before anything is awaited: what is drawn from here on knows these results, as the journal's order says.
        chosen = {} if self.curriculum is None else self.curriculum.observe(taken.step, taken.groups, taken.dropped)
        parts = split_all(taken.groups)
        unused = [(part, reason) for group, reason in taken.dropped for part in split_roles(group)]
        unused += [(part, DropReason.NOT_LEARNING) for part in parts if not learns(part)]
        groups: dict[str, list[TrajectoryGroup]] = {name: [] for name in self.learners}
        for part in parts:
            if learns(part):
                groups[find_learner(self.settings.roles, part.role) or ""].append(part)
        assignments = await self._assign_all(groups, taken.step)
        accounts = [account_dropped(group, reason, step=taken.step, version=self.version) for group, reason in unused]
        trained = [each for name in groups for each in self._account(name, groups[name], assignments[name], taken.step)]
        order = {(part.draw.index, part.role): place for place, part in enumerate(parts)}
        accounts += sorted(trained, key=lambda account: order[account.draw, account.role])
        append_accounts(self._folder.path, self._name_pools(accounts))
        reports = await self.trainer.step({name: each.batch for name, each in assignments.items()})
        for name, learner in self.learners.items():
            if assignments[name].batch.samples:
                learner.follow(reports[name])
        self.step, self.version = taken.step, self.version + 1
        if self.past is not None:
            self.past.count([*taken.groups, *(group for group, _ in taken.dropped)])
        self.optimizer_steps = reports[""].optimizer_steps
        advantages = [each.advantages for each in assignments.values() if each.advantages is not None]
        if advantages:
            together = {name: turns for each in advantages for name, turns in each.items()}
            save_advantages(self._folder.path, taken.step, together)
        metrics = name_metrics({name: {**assignments[name].metrics, **reports[name].metrics} for name in reports})
        sums = join_sums({name: report.sums for name, report in reports.items()})
        return {**metrics, **count_dropped(accounts), **chosen}, replace(reports[""], metrics=metrics, sums=sums)

    async def _assign_all(self, groups: Mapping[str, Sequence[TrajectoryGroup]], step: int) -> dict[str, Assignment]:
        """Return every learner's assignment; one that has nothing to train while others have sits the step out.

        Raises NothingToTrain if no learner has anything to train."""
        assignments: dict[str, Assignment] = {}
        idle: dict[str, NothingToTrain] = {}
        for name, each in groups.items():
            try:
                assignments[name] = await self._assign(name, each, step)
            except NothingToTrain as nothing:
                assignments[name], idle[name] = nothing.assignment, nothing
        if idle and not any(each.batch.samples for each in assignments.values()):
            raise next(iter(idle.values()))
        for name, why in idle.items():
            assignments[name] = replace(why.assignment, metrics={"train/skipped_steps": Sum(1)})
            learner = f"learner {name!r}" if name else "the first learner"
            self._recorder.record(Note(kind="alarm", text=f"step {step}: {learner} keeps its weights: {why}"))
        return assignments

    async def _assign(self, name: str, groups: Sequence[TrajectoryGroup], step: int) -> Assignment:
        """Return a learner's assignment for the groups of its roles."""
        if not groups:
            return _assign_nothing(step)
        learner, samples, columns = self.learners[name], list_samples(groups), Columns()
        if samples and learner.wanted:
            outcomes = list_outcomes(groups)
            columns = await self.trainer.score(samples, learner.wanted, outcomes=outcomes, learner=name)
        return learner.assign(groups, columns, step)

    def _account(
        self, name: str, groups: Sequence[TrajectoryGroup], assignment: Assignment, step: int
    ) -> list[GroupAccount]:
        """Prove that a learner trains exactly what the groups of its roles sampled."""
        batch = assignment.batch
        return account_batch(
            groups,
            [[batch.samples[i] for i in update] for update in batch.updates],
            assignment.drops,
            step=step,
            version=self.version,
            max_staleness=self.settings.max_staleness,
            max_times=self.settings.max_times,
            observations_train=self.settings.observations_train,
            learner=name,
        )

    def give_up(self, step: int, counters: Mapping[str, Any]) -> None:
        """Forget a step that `train` raised for, given `counters()` before it."""
        self.restore(counters)
        self._folder.truncate(after_step=step - 1)
        forget_packed(self._folder.path, after_step=step - 1)

    def account(self, dropped: Sequence[tuple[TrajectoryGroup, DropReason]], *, step: int, version: int) -> None:
        """Put further groups that were dropped while `step` was collected on the ledger."""
        accounts = [
            account_dropped(part, reason, step=step, version=version)
            for group, reason in dropped
            for part in split_roles(group)
        ]
        append_accounts(self._folder.path, self._name_pools(accounts))

    def _name_pools(self, accounts: Sequence[GroupAccount]) -> Sequence[GroupAccount]:
        """Return the accounts with what their draws were for."""
        if self.curriculum is None:
            return accounts
        return [replace(account, pool=self.curriculum.name_pool(account.draw)) for account in accounts]

    def record(self, taken: Taken, values: Mapping[str, float]) -> None:
        """Tell the recorders about the step and its problems."""
        self._recorder.record(StepEnds(step=taken.step, phase="train", values=values))
        groups = [*taken.groups, *(group for group, _ in taken.dropped)]
        drifts = self._drifts.follow([trajectory for group in groups for trajectory in group.trajectories])
        drifts += self._truths.follow(groups)
        found = [] if self._diagnosis is None else self._diagnosis.follow(taken.step, values)
        for line in self._alarms.follow(taken.step, [*describe_alarms(values), *drifts, *found]):
            self._recorder.record(Note(kind="alarm", text=line))
        for kind, text in {**describe_exceptions(groups), **describe_invalid(groups)}.items():
            if kind not in self._faults:
                self._faults.add(kind)
                self._recorder.record(Note(kind="alarm", text=f"step {taken.step}: {text}"))


def name_metrics(by_learner: Mapping[str, Mapping[str, Metric]]) -> dict[str, Metric]:
    """Merge the metrics of several learners into one table; those of a named learner are prefixed with its name."""
    return {
        f"{learner}/{name}" if learner else name: metric
        for learner, metrics in by_learner.items()
        for name, metric in metrics.items()
    }


def count_dropped(accounts: Iterable[GroupAccount]) -> dict[str, Metric]:
    """Return `dropped/REASON`: the number of sampled tokens of a step that do not train, for every reason that
    occurs."""
    tokens: Counter[str] = Counter()
    for account in accounts:
        tokens.update(account.dropped)
    return {f"dropped/{reason}": Sum(count) for reason, count in sorted(tokens.items())}


def _assign_nothing(step: int) -> Assignment:
    """Return the empty batch of a step whose groups were all dropped."""
    return Assignment(batch=TrainingBatch(step=step, objective="supervised", samples=()), drops=(), advantages={})
