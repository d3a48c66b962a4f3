"""The evaluations that a training run makes: which are due, where they are played, and what they decide."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from turnwise.config.evaluate import SELECTION
from turnwise.config.run import RunConfig
from turnwise.core.errors import StoreError
from turnwise.core.events import Evaluated, Note, PhaseBegins, StepEnds
from turnwise.core.metrics import Mean, Metric, record
from turnwise.core.protocols import Recorder
from turnwise.evaluation.stopping import count_without_progress
from turnwise.evaluation.summary import Summary
from turnwise.runs.build import System
from turnwise.runs.evaluate import evaluate_policy, name_evaluation, name_label
from turnwise.runs.evaluation_fleet import EvaluationFleet, build_fleet
from turnwise.runs.heldout import HeldOutSet, list_sets
from turnwise.runs.selection import describe_choice, read_choice, read_scores, write_choice
from turnwise.store.run_folder import RunFolder

OUTSTANDING = "outstanding.json"
"""File of the run folder with the steps whose evaluation was begun beside training and is not recorded."""
WAITING_PER_PROCESS = 1
"""Evaluations that may wait for each process before training waits: every one of them keeps a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an evaluation of a step gives, as plain data."""

    step: int
    values: Mapping[str, float]
    """Metrics by name."""
    summaries: list[Mapping[str, Any]]
    """One per set, the reported one first."""
    notes: list[str]
    """Which tasks were not played."""


async def play_evaluation(system: System, folder: RunFolder, *, step: int) -> Outcome:
    """Evaluate the system on every set of its recipe and write the results. Raises as `evaluate_policy`."""
    notes: list[str] = []
    label = name_label(system.config, step)
    summaries: list[Summary] = []
    values: dict[str, Metric] = {}
    for on in list_sets(system):
        summary = await evaluate_policy(
            on,
            folder,
            name=name_evaluation("heldout", on.name, step),
            label=f"{label}, {on.name}" if on.name else label,
            step=step,
            tell=notes.append,
        )
        summaries.append(summary)
        values |= _measure(summary, on.name)
    return Outcome(step=step, values=record(values), summaries=[each.to_json() for each in summaries], notes=notes)


def _measure(summary: Summary, name: str) -> dict[str, Metric]:
    """The metrics of a set's evaluation."""
    row = summary.row("all")
    if name:
        return {f"evaluate/on_{name}_success": Mean(row.success)}
    metrics: dict[str, Metric] = {
        "evaluate/success": Mean(row.success),
        "evaluate/tool_calls": Mean(row.tool_calls),
    }
    if row.pass_at:
        metrics["evaluate/pass_at_samples"] = Mean(row.pass_at[-1].share)
    if row.reward is not None:
        metrics["evaluate/reward"] = Mean(row.reward)
    return metrics | {f"evaluate/reward_{part}": Mean(value) for part, value in row.parts.items()}


def is_due(config: RunConfig, step: int) -> bool:
    """Whether a run is evaluated after RL step `step`."""
    every = config.evaluate.every
    return step in (0, config.train.steps) or bool(every and step % every == 0)


def read_outstanding(folder: RunFolder) -> set[int]:
    """The steps in `outstanding.json`; none without the file. Raises StoreError if it is damaged."""
    path = folder.path / OUTSTANDING
    try:
        return {int(step) for step in json.loads(path.read_bytes())}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, TypeError) as cause:
        raise StoreError(f"cannot read {path} ({cause}); delete it, and evaluate its steps again") from cause


class Evaluations:
    """The evaluations of one run, in the process of the run or, with a fleet, beside training."""

    def __init__(
        self,
        system: System,
        folder: RunFolder,
        recorder: Recorder,
        *,
        check: Callable[[], None] = lambda: None,
        fleet: EvaluationFleet | None = None,
    ) -> None:
        """`check` is called before results are recorded and raises StoreError where the folder is another
        process's. `fleet` None: that of the recipe, started when it is first needed."""
        self._system, self._folder, self._recorder = system, folder, recorder
        self._fleet = fleet
        self._check = check
        self._beside: dict[int, asyncio.Task[None]] = {}
        """Evaluations that were begun beside training, by step, until they are recorded."""
        self._scores: dict[int, Mapping[str, float]] = {}

    @property
    def is_beside(self) -> bool:
        """Whether evaluations are played beside training, and need a checkpoint of their step."""
        return self._system.config.evaluate.num_workers > 0

    def is_due(self, step: int) -> bool:
        """Whether an evaluation is due after RL step `step`."""
        return is_due(self._system.config, step)

    def list_outstanding(self) -> set[int]:
        """Steps whose evaluation was begun beside training and is not recorded, by this process or one before it: their
        checkpoints are needed. Raises StoreError if the file with them is damaged."""
        return read_outstanding(self._folder)

    async def play(self, step: int) -> None:
        """Evaluate after RL step `step`, unless that is done; beside training, begin to.

        Beside training it waits only while as many evaluations as may wait already do. Raises what an evaluation
        raised, whichever it was.
        """
        if not self._system.config.evaluate.tasks or step in self._list_done():
            return
        if not self.is_beside:
            self._recorder.record(PhaseBegins(phase="evaluate"))
            self._record(await play_evaluation(self._system, self._folder, step=step))
        elif step not in self._beside:
            await self._begin(step)

    async def resume(self, step: int) -> None:
        """Begin again the evaluations of steps before `step` that another process did not see the end of."""
        outstanding = self.list_outstanding() - self._list_done()
        self._write_outstanding({each for each in outstanding if each <= step})
        for each in sorted(each for each in outstanding if each < step):
            await self._begin(each)

    async def _begin(self, step: int) -> None:
        if self._fleet is None:
            self._fleet = build_fleet(self._system.config, self._folder.path)
        most = self._fleet.num_workers * (1 + WAITING_PER_PROCESS)
        while len(waiting := self._list_running()) >= most:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        self._collect()
        self._write_outstanding(self.list_outstanding() | {step})
        previous = next(reversed(self._beside.values()), None)
        self._beside[step] = asyncio.create_task(self._play_beside(self._fleet, step, previous))

    def _list_done(self) -> set[int]:
        return {int(row["step"]) for row in self._folder.read_metrics() if row["phase"] == "evaluate"}

    def _write_outstanding(self, steps: set[int]) -> None:
        if steps != self.list_outstanding():
            self._folder.write_json(OUTSTANDING, sorted(steps))

    async def _play_beside(self, fleet: EvaluationFleet, step: int, previous: asyncio.Task[None] | None) -> None:
        """Play an evaluation in another process; results are recorded in the order of their steps."""
        outcome = await fleet.play(step)
        if previous is not None:
            await asyncio.wait({previous})
            if previous.cancelled() or previous.exception() is not None:
                return  # the run ends by it; this one is played again when it continues
        self._record(Outcome(**outcome))
        self._write_outstanding(self.list_outstanding() - {step})

    def _list_running(self) -> list[asyncio.Task[None]]:
        return [task for task in self._beside.values() if not task.done()]

    def _collect(self) -> None:
        """Forget the evaluations beside training that are recorded. Raises what one of them raised."""
        for step, task in list(self._beside.items()):
            if task.done():
                task.result()
                if len(self._beside) > 1:
                    del self._beside[step]

    async def finish(self) -> None:
        """Wait for the evaluations beside training, at most `evaluate.deadline_s`, and say which were waited for. Those
        that are later stay to be played when the run is continued."""
        self._collect()
        if running := {step for step, task in self._beside.items() if not task.done()}:
            deadline_s = self._system.config.evaluate.deadline_s
            steps = ", ".join(map(str, sorted(running)))
            self._note(f"training is done; waiting at most {deadline_s:g} s for the evaluations of steps {steps}")
            await asyncio.wait(self._list_running(), timeout=deadline_s)
            if late := {step for step, task in self._beside.items() if not task.done()}:
                self._note(
                    f"the evaluations of steps {', '.join(map(str, sorted(late)))} took longer than "
                    f"evaluate.deadline_s={deadline_s:g}; their checkpoints are kept, and `turnwise train --resume "
                    f"{self._folder.path}` plays them"
                )
        self._collect()

    async def close(self) -> None:
        """End what still runs beside training."""
        for task in self._beside.values():
            task.cancel()
        if self._beside:
            await asyncio.wait(self._beside.values())
            for task in self._beside.values():
                if not task.cancelled():
                    task.exception()
        if self._fleet is not None:
            self._fleet.close()

    async def ends_training(self, step: int) -> bool:
        """Whether the selection set ends training after RL step `step`, at which an evaluation is due.

        In line the evaluation of `step` counts. Beside training it has just begun: those before it are waited for, and
        count, so that where a run ends does not depend on how fast they were.
        """
        train = self._system.config.train
        if not train.patience or not self.is_due(step):
            return False
        last = step
        if self.is_beside:
            last = step - 1
            earlier = [task for at, task in self._beside.items() if at < step and not task.done()]
            if earlier:
                await asyncio.wait(earlier)
            for task in [task for at, task in self._beside.items() if at < step]:
                task.result()
        steps = sorted(each for each in self._list_done() if each <= last)
        scores = [self._read_scores(each) for each in steps]
        planned = sum(self.is_due(each) for each in range(train.steps + 1))
        return count_without_progress(scores, train.patience_on, num_planned=planned) >= train.patience

    def _read_scores(self, step: int) -> Mapping[str, float]:
        if step not in self._scores:
            self._scores[step] = read_scores(self._folder, name_evaluation("heldout", SELECTION, step))
        return self._scores[step]

    async def play_control(self, name: str, changes: dict[str, Any], *, step: int) -> None:
        """Evaluate with something taken away from the policy, in line, unless that is done."""
        evaluate = self._system.config.evaluate
        files = name_evaluation("heldout", "", step, control=name)
        if not evaluate.tasks or (self._folder.path / "evaluations" / f"{files}.summary.json").exists():
            return
        self._recorder.record(PhaseBegins(phase="evaluate"))
        label = f"after RL, {name}"
        on = HeldOutSet(name="", system=self._system, num_tasks=evaluate.tasks)
        summary = await evaluate_policy(on, self._folder, name=files, label=label, step=step, changes=changes)
        self._recorder.record(Evaluated(step=step, label=label, summary=asdict(summary)))

    def describe_choice(self) -> str:
        """Write down which checkpoint the evaluations choose, and say it in one line; "" where none is chosen, and
        where that was said before."""
        if not (self._system.config.train.keep_best or self._system.config.evaluate.selection_tasks):
            return ""
        before = read_choice(self._folder)
        choice = write_choice(self._folder, self._system.config)
        text = "" if choice is None else describe_choice(choice)
        return "" if text == before else text

    def _record(self, outcome: Outcome) -> None:
        self._check()
        for text in outcome.notes:
            if outcome.step == 0:  # the tasks stay the same
                self._note(text)
            else:
                self._folder.append_event("evaluation", text)
        # The metrics row is written last: where it exists, the evaluation is whole.
        self._recorder.record(StepEnds(step=outcome.step, phase="evaluate", values=outcome.values))
        for summary in outcome.summaries:
            self._recorder.record(Evaluated(step=outcome.step, label=str(summary["label"]), summary=summary))

    def _note(self, text: str) -> None:
        self._recorder.record(Note(kind="evaluation", text=text))
