"""The outcome of an evaluation as numbers: what each task scored, and which tasks belong together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from turnwise.core.errors import DataError
from turnwise.core.relations import name_cluster
from turnwise.core.types import Scored, TrajectoryGroup
from turnwise.evaluation.summary import list_episodes, take_success


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What one task scored."""

    scores: tuple[float, ...]
    """Of every scored attempt, each in [0, 1]; may be empty."""
    cluster: str
    """Tasks of one cluster are no independent results."""
    kind: str | None = None
    """None if tasks have no kinds."""

    @property
    def mean(self) -> float:
        """Mean score of the attempts, of which there must be one."""
        return math.fsum(self.scores) / len(self.scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """One evaluation."""

    name: str
    """What people call it."""
    tasks: Mapping[str, TaskResult]
    """By the name or id of the task."""
    notes: tuple[str, ...] = ()
    """What a reader of these results should know, one line each."""


def to_results(name: str, groups: Sequence[TrajectoryGroup]) -> Results:
    """Return the successes of an evaluation's episodes as its results; attempts at copies of a task are attempts at
    that task."""
    tasks: dict[str, TaskResult] = {}
    for group in groups:
        scores = [
            take_success(episode)
            for episode in list_episodes(group)
            if any(isinstance(trajectory.reward, Scored) for trajectory in episode)
        ]
        kind, earlier = group.task.payload.get("kind"), tasks.get(group.task.id)
        tasks[group.task.id] = TaskResult(
            scores=(*(earlier.scores if earlier else ()), *scores),
            cluster=name_cluster(group.task),
            kind=None if kind is None else str(kind),
        )
    return Results(name=name, tasks=tasks)


def pair_results(first: Results, second: Results) -> tuple[list[str], list[str]]:
    """Return the names of the tasks that both scored, in the order of the first, and what should be known about the
    others, one line each.

    Raises DataError if no task is shared, or if one is in different clusters.
    """
    shared = [name for name in first.tasks if name in second.tasks]
    counts = f"{first.name} has {len(first.tasks):,} tasks and {second.name} has {len(second.tasks):,}"
    if not shared:
        raise DataError(f"{counts}, of which 0 are shared; compare evaluations of the same tasks")
    notes = [*first.notes, *second.notes]
    if len(shared) < max(len(first.tasks), len(second.tasks)):
        notes.append(f"{counts}, of which {len(shared):,} are shared; only these are compared")
    scored = [name for name in shared if first.tasks[name].scores and second.tasks[name].scores]
    if len(scored) < len(shared):
        notes.append(
            f"{len(shared) - len(scored):,} shared tasks have no scored attempt in one of the evaluations and are left "
            "out; if hard tasks fail more often, the comparison favours whoever failed"
        )
    if not scored:
        raise DataError(f"none of the {len(shared):,} shared tasks has a scored attempt in both evaluations")
    for name in scored:
        one, other = first.tasks[name].cluster, second.tasks[name].cluster
        if one != other:
            raise DataError(
                f"task {name!r} is in cluster {one!r} in {first.name} and in {other!r} in {second.name}; give both the "
                "same clusters, or none"
            )
    return scored, notes


def gather(names: Iterable[str], results: Results, values: Mapping[str, float]) -> dict[str, list[float]]:
    """Return the `values` of tasks by their cluster in `results`."""
    clusters: dict[str, list[float]] = {}
    for name in names:
        clusters.setdefault(results.tasks[name].cluster, []).append(values[name])
    return clusters
