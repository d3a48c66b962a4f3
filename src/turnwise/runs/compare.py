"""Compare two evaluations: of runs, at any step, or from files of other programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from turnwise.core.errors import ConfigError, DataError, StoreError
from turnwise.evaluation.comparison import Comparison, compare_results
from turnwise.evaluation.results import Results, TaskResult, to_results
from turnwise.exchange.score_files import read_score_rows
from turnwise.store.chosen_checkpoints import BEST, LATEST, rank_steps, read_rows, read_successes
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups

SUMMARY, ROWS = ".summary.json", ".jsonl"


def run_compare(first: str, second: str, *, score: str | None = None, aim: float = 0.02) -> Comparison:
    """Compare the evaluation that `second` names with that of `first` (see `load_results`).

    `score` names the score of files; `aim` is the difference that one wants to see. Raises ConfigError, DataError or
    StoreError naming what cannot be compared.
    """
    if not 0 < aim <= 1:
        raise ConfigError(f"--aim {aim:g} is not a difference in (0, 1]; 0.02 is two points")
    results = [load_results(target, score=score) for target in (first, second)]
    if score is not None and not any(Path(target).is_file() for target in (first, second)):
        raise ConfigError(f"--score {score} chooses a score of a file; of runs the success is compared")
    return compare_results(results[0], results[1], aim=aim)


def load_results(target: str, *, score: str | None = None) -> Results:
    """Load what `target` names: a file of scores (`exchange.score_files`), `RUN`, or `RUN@WHICH`.

    `WHICH` is an RL step, "best" or "latest" among the evaluations that the run itself made (None: the latest), or the
    name of an evaluation. Raises ConfigError, DataError or StoreError.
    """
    path = Path(target)
    if path.is_file():
        return _from_file(path, score)
    run, _, which = (target, "", "") if path.is_dir() else target.rpartition("@")
    if not run:
        raise DataError(f"{target} is neither a run folder nor a file; name RUN, RUN@STEP or a file of scores")
    folder = RunFolder.open(Path(run))
    name = _find_evaluation(folder.path, which)
    summary = _read_summary(folder.path / "evaluations" / f"{name}{SUMMARY}")
    label = f"{folder.path.resolve().name}@{which or int(summary['step'])}"
    results = to_results(label, load_groups(folder.path / "evaluations", name))
    return Results(name=label, tasks=results.tasks, notes=tuple(_list_notes(folder.path, label, which, summary)))


def _read_summary(path: Path) -> dict[str, object]:
    try:
        summary = json.loads(path.read_bytes())
        int(summary["step"])
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise StoreError(f"cannot read {path} ({cause}); evaluate again with `turnwise evaluate`") from cause
    return summary


def _find_evaluation(run: Path, which: str) -> str:
    """The name of the evaluation that `which` refers to; "" is the latest."""
    found = {path.name.removesuffix(SUMMARY) for path in (run / "evaluations").glob(f"*{SUMMARY}")}
    begun = {path.stem for path in (run / "evaluations").glob("*.npz")} - found
    steps = {int(match[1]): name for name in found if (match := re.fullmatch(r"heldout_(\d+)", name))}
    if not found:
        interrupted = f"; {', '.join(sorted(begun))} was interrupted" if begun else ""
        raise DataError(
            f"run {run} has no finished evaluation on held-out tasks{interrupted}; make one with `turnwise evaluate "
            f"{run} --tasks 500`"
        )
    name = which
    if which in ("", LATEST) and steps:
        name = steps[max(steps)]
    elif which == BEST and steps:
        name = next((steps[step] for step in rank_steps(read_successes(run)) if step in steps), which)
    elif which.isdecimal():
        name = steps.get(int(which), f"heldout_{int(which):06d}")
    if name in begun:
        raise DataError(f"evaluation {name} of run {run} was interrupted; repeat it with `turnwise evaluate {run}`")
    if name not in found:
        raise DataError(
            f"run {run} has no evaluation {name or LATEST!r}; name a step or one of these after @: "
            f"{', '.join(sorted(found))}"
        )
    return name


def _list_notes(run: Path, label: str, which: str, summary: dict[str, object]) -> list[str]:
    notes = []
    if which == BEST and not read_rows(run, "heldout-selection") and (count := len(read_successes(run))) > 1:
        notes.append(f"{label} was chosen as the best of {count} evaluations, so its success is too high by chance")
    if summary.get("decision") is not None:
        notes.append(
            f"{label} stopped as soon as its answer was known, so its success is too far from what it was compared with"
        )
    return notes


def _from_file(path: Path, score: str | None) -> Results:
    """The results that a file's rows give."""
    tasks: dict[str, TaskResult] = {}
    for row in read_score_rows(path, score):
        earlier = tasks[row.task].scores if row.task in tasks else ()
        scores = earlier if row.score is None else (*earlier, row.score)
        cluster = row.task if row.cluster is None else f"cluster {row.cluster}"
        tasks[row.task] = TaskResult(scores=scores, cluster=cluster, kind=row.kind)
    return Results(name=path.name, tasks=tasks)
