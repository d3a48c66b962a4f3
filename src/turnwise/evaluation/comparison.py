"""Compares two evaluations of the same tasks, task by task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from turnwise.core.errors import DataError
from turnwise.evaluation.intervals import compute_clustered_interval
from turnwise.evaluation.multiple import adjust_holm
from turnwise.evaluation.paired import compute_difference, compute_mcnemar, compute_sign_flips
from turnwise.evaluation.power import LEVEL, compute_detectable, compute_power
from turnwise.evaluation.results import Results, gather, pair_results

ALL = "all"
FEW_CLUSTERS = 30
"""With fewer clusters, intervals of rare successes that come in few of them hold the truth less often than they say
(`docs/evaluation.md`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedKind:
    """Two evaluations on the tasks of one kind."""

    kind: str
    n: int
    """Number of shared tasks."""
    clusters: int
    """Number of independent units: clusters of tasks."""
    first: float
    second: float
    """Mean over tasks of the mean score of their attempts."""
    first_low: float
    first_high: float
    second_low: float
    second_high: float
    """95% intervals of both."""
    difference: float
    """`second` - `first`."""
    low: float
    high: float
    """`low` to `high` is its 95% interval, of paired tasks; (-1, 1) if all tasks are in one cluster."""
    first_only: int
    second_only: int
    """Number of tasks on which that side is better."""
    test: Literal["McNemar", "sign flips"]
    """McNemar's exact test with one attempt at each task and tasks that are independent; otherwise the flips of the
    signs of clusters."""
    p: float
    """Two-sided p-value of `test`."""
    p_holm: float
    """`p` adjusted for the number of kinds (Holm); that of "all" is not adjusted."""
    detectable: float | None
    """Smallest difference that is found with a probability of 80%; None with one cluster."""
    power: float | None
    """Probability that a difference of `Comparison.aim` is found; None with one cluster."""
    tasks_needed: int | None
    """Number of such tasks with which it is found with a probability of 80%; None with one cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two evaluations."""

    first: str
    second: str
    aim: float
    """The difference that one wants to see."""
    rows: tuple[ComparedKind, ...]
    """One per kind, in alphabetical order, then "all"."""
    notes: tuple[str, ...]
    """What a reader should know, one line each."""

    @property
    def total(self) -> ComparedKind:
        """The row of all tasks."""
        return self.rows[-1]

    @property
    def verdict(self) -> str:
        """What is known, in one sentence."""
        row = self.total
        if row.p < LEVEL and row.difference:
            better = self.second if row.difference > 0 else self.first
            return f"{better} is better by {100 * abs(row.difference):.1f} points (p = {row.p:.2g})"
        seen = "" if row.detectable is None else f"; {row.n:,} tasks can see {100 * row.detectable:.1f} points"
        return f"no difference is shown (p = {row.p:.2g}){seen}"

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return asdict(self) | {"verdict": self.verdict}


def compare_results(first: Results, second: Results, *, aim: float = 0.02) -> Comparison:
    """Compare two evaluations on the tasks that both scored.

    Raises DataError if no task is shared, or if all of them are in one cluster of several tasks.
    """
    names, notes = pair_results(first, second)
    clusters = {first.tasks[name].cluster for name in names}
    if len(clusters) == 1:
        what = f"all {len(names):,} shared tasks are in one cluster ({next(iter(clusters))})"
        raise DataError(
            f"{what}, which is one result: nothing can be said of others; evaluate tasks of several clusters"
        )
    if len(clusters) < FEW_CLUSTERS:
        notes.append(
            f"only {len(clusters)} clusters of tasks: where few of them differ, intervals from fewer than "
            f"{FEW_CLUSTERS} hold the truth less often than they say"
        )
    by_kind: dict[str, list[str]] = {}
    for name in names:
        kind = first.tasks[name].kind
        if kind is not None:
            by_kind.setdefault(kind, []).append(name)
    rows = [_compare_kind(kind, by_kind[kind], first, second, aim) for kind in sorted(by_kind)]
    adjusted = adjust_holm([row["p"] for row in rows])
    total = _compare_kind(ALL, names, first, second, aim)
    return Comparison(
        first=first.name,
        second=second.name,
        aim=aim,
        rows=(
            *(ComparedKind(**row, p_holm=p) for row, p in zip(rows, adjusted, strict=True)),
            ComparedKind(**total, p_holm=total["p"]),
        ),
        notes=tuple(notes),
    )


def _compare_kind(kind: str, names: Sequence[str], first: Results, second: Results, aim: float) -> dict[str, Any]:
    means = [{name: each.tasks[name].mean for name in names} for each in (first, second)]
    differences = {name: means[1][name] - means[0][name] for name in names}
    clusters = [*gather(names, first, differences).values()]
    better = sum(value > 0 for value in differences.values())
    worse = sum(value < 0 for value in differences.values())
    single = all(len(each.tasks[name].scores) == 1 for each in (first, second) for name in names)
    whole = all(abs(value) in (0.0, 1.0) for value in differences.values())
    matched = single and whole and len(clusters) == len(names)
    intervals = [compute_clustered_interval(_group_attempts(names, each)) for each in (first, second)]
    row = {
        "kind": kind,
        "n": len(names),
        "clusters": len(clusters),
        "first": math.fsum(means[0].values()) / len(names),
        "second": math.fsum(means[1].values()) / len(names),
        "first_low": intervals[0][0],
        "first_high": intervals[0][1],
        "second_low": intervals[1][0],
        "second_high": intervals[1][1],
        "first_only": worse,
        "second_only": better,
        "test": "McNemar" if matched else "sign flips",
        "p": compute_mcnemar(worse, better) if matched else compute_sign_flips([math.fsum(each) for each in clusters]),
    }
    return row | _describe_difference(clusters, len(names), aim)


def _group_attempts(names: Sequence[str], results: Results) -> list[list[float]]:
    """The scores of the attempts, cluster by cluster."""
    clusters: dict[str, list[float]] = {}
    for name in names:
        clusters.setdefault(results.tasks[name].cluster, []).extend(results.tasks[name].scores)
    return [*clusters.values()]


def _describe_difference(clusters: Sequence[Sequence[float]], num_tasks: int, aim: float) -> Mapping[str, Any]:
    if len(clusters) == 1:
        mean = math.fsum(clusters[0]) / num_tasks
        unknown = dict.fromkeys(("detectable", "power", "tasks_needed"))
        return {"difference": mean, "low": -1.0, "high": 1.0, **unknown}
    found = compute_difference(clusters)
    detectable = compute_detectable(standard_error=found.standard_error, freedom=found.freedom)
    return {
        "difference": found.mean,
        "low": found.low,
        "high": found.high,
        "detectable": detectable,
        "power": compute_power(aim, standard_error=found.standard_error, freedom=found.freedom),
        # The standard error falls with the square root of the number of tasks.
        "tasks_needed": math.ceil(num_tasks * (detectable / aim) ** 2),
    }
