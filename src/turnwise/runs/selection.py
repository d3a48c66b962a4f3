"""Which checkpoint the evaluations of a run choose, and how much choosing it adds to its score."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from turnwise.config.evaluate import SELECTION
from turnwise.config.run import RunConfig
from turnwise.core.roles import take_measured
from turnwise.core.types import Scored
from turnwise.evaluation.optimism import compute_optimism_of_equals, estimate_optimism
from turnwise.evaluation.summary import is_success
from turnwise.store.chosen_checkpoints import rank_steps, read_rows
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups

CHOICE = "selection.json"
"""File of the run folder that has the choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best of a run's evaluations."""

    step: int
    num_evaluations: int
    """Evaluations among which it is the best."""
    is_apart: bool
    """Whether the tasks that chose it are others than those that report."""
    chosen_by: Mapping[str, Any]
    """Its row on the tasks that chose it."""
    reported: Mapping[str, Any]
    """Its row on the tasks that report."""
    expected: float | None
    """How much choosing it is expected to add to its success on the tasks that chose it (`estimate_optimism`); None
    with too few evaluations or tasks."""
    at_most: float | None
    """The same if all evaluations were equal and independent (`compute_optimism_of_equals`)."""
    table: tuple[tuple[int, float, float], ...]
    """Of every evaluation its step, its success on the tasks that choose, and on those that report."""


def read_scores(folder: RunFolder, name: str) -> dict[str, float]:
    """Mean success by task id in an evaluation's trajectories, without tasks that could not be scored. Raises
    StoreError if they cannot be read."""
    scores: dict[str, float] = {}
    for group in load_groups(folder.path / "evaluations", name):
        shares = [float(is_success(each)) for each in take_measured(group) if isinstance(each.reward, Scored)]
        if shares:
            scores[group.task.id] = math.fsum(shares) / len(shares)
    return scores


def write_choice(folder: RunFolder, config: RunConfig) -> Choice | None:
    """Find the best evaluation and write it down; None if there are fewer than two."""
    is_apart = bool(config.evaluate.selection_tasks)
    kind = f"heldout-{SELECTION}" if is_apart else "heldout"
    chosen_by, reported = read_rows(folder.path, kind), read_rows(folder.path, "heldout")
    steps = sorted(set(chosen_by) & set(reported))
    if len(steps) < 2:
        return None
    best = rank_steps({step: float(chosen_by[step]["success"]) for step in steps})[0]
    scores = [read_scores(folder, f"{kind}_{step:06d}") for step in steps]
    mean = math.fsum(float(chosen_by[step]["success"]) for step in steps) / len(steps)
    num_tasks = int(chosen_by[best]["n"])
    choice = Choice(
        step=best,
        num_evaluations=len(steps),
        is_apart=is_apart,
        chosen_by=chosen_by[best],
        reported=reported[best],
        expected=estimate_optimism(scores, seed=config.run.seed),
        at_most=compute_optimism_of_equals(len(steps), num_tasks, mean) if num_tasks else None,
        table=tuple((step, float(chosen_by[step]["success"]), float(reported[step]["success"])) for step in steps),
    )
    folder.write_json(CHOICE, {**asdict(choice), "text": describe_choice(choice)})
    return choice


def read_choice(folder: RunFolder) -> str:
    """The line that `write_choice` wrote down; "" without one, or if it cannot be read."""
    try:
        return str(json.loads((folder.path / CHOICE).read_bytes())["text"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def describe_choice(choice: Choice) -> str:
    """The choice and its optimism in one line."""
    chosen_by, reported = _format(choice.chosen_by), _format(choice.reported)
    text = (
        f"step {choice.step} is the best of {choice.num_evaluations} evaluations, {chosen_by} on the tasks that chose"
    )
    if choice.is_apart:
        gap = 100 * (choice.chosen_by["success"] - choice.reported["success"])
        text += f" it and {reported} on the tasks that report: {abs(gap):.1f} points {'lower' if gap > 0 else 'higher'}"
    else:
        text += " it and report too; set evaluate.selection_tasks to choose on others"
    if choice.expected is not None and choice.at_most is not None:
        text += (
            f"; choosing adds {100 * choice.expected:.1f} points by split halves, {100 * choice.at_most:.1f} if all "
            "evaluations were equal and independent"
        )
    return text


def _format(row: Mapping[str, Any]) -> str:
    share = f"{100 * row['success']:.1f}%"
    return f"{share} [{100 * row['low']:.1f}, {100 * row['high']:.1f}] of {row['n']}"
