"""How often a policy solves each kind of task, and which tasks it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from turnwise.core.errors import DataError
from turnwise.core.types import Task, TrajectoryGroup
from turnwise.evaluation.intervals import compute_wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRate:
    """Attempts at tasks of one kind."""

    kind: str
    solved: float
    """Number of attempts that were solved; a fraction where attempts are solved in part."""
    attempts: int
    """Number of scored attempts; at least one."""
    failed: tuple[str, ...] = ()
    """Names of the tasks that not every attempt solved, the most often failed first; empty if only rates are known."""

    @property
    def rate(self) -> float:
        """Share of attempts that were solved."""
        return self.solved / self.attempts

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% Wilson interval, as if attempts at one task were independent."""
        return compute_wilson_interval(self.solved, self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The kinds of which new tasks are made."""

    low: float
    high: float
    min_attempts: int
    rates: tuple[KindRate, ...]
    weights: dict[str, float] = field(default_factory=dict)
    """Share of the new tasks by kind; they sum to 1."""


def name_kind(task: Task, by: Sequence[str]) -> str:
    """Return the kind of a task: the values of these fields of its payload, joined by "/"."""
    return "/".join(str(task.payload.get(name, "")) for name in by)


def measure_groups(
    groups: Iterable[TrajectoryGroup],
    read: Callable[[TrajectoryGroup], Sequence[float | None]],
    *,
    by: Sequence[str],
) -> list[KindRate]:
    """Return the rates of stored groups by kind, in alphabetical order. `read` returns what each attempt earned, from 0
    to 1, None for one that could not be scored: it counts as no attempt. Raises DataError for any other number."""
    earned: dict[str, list[float]] = {}
    failed: dict[str, dict[str, list[float]]] = {}
    for group in groups:
        kind, values = name_kind(group.task, by), [value for value in read(group) if value is not None]
        if wrong := [value for value in values if not 0 <= value <= 1]:
            raise DataError(
                f"task {group.task.id} earned {wrong[0]:g}, which is no share of success from 0 to 1; name a part of "
                "the reward that is one with --metric"
            )
        earned.setdefault(kind, []).extend(values)
        if any(value < 1 for value in values):
            failed.setdefault(kind, {}).setdefault(group.task.id, []).extend(values)
    return [
        KindRate(kind=kind, solved=sum(values), attempts=len(values), failed=_sort_failed(failed.get(kind, {})))
        for kind, values in sorted(earned.items())
        if values
    ]


def _sort_failed(earned: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Return the names of tasks, the least solved first."""
    return tuple(sorted(earned, key=lambda task: (sum(earned[task]) / len(earned[task]), task)))


def choose_targets(rates: Sequence[KindRate], *, low: float, high: float, min_attempts: int) -> Targets:
    """Return the kinds whose rate is from `low` to `high` over at least `min_attempts` attempts, weighted by their
    share of failures.

    Raises DataError with all rates if there is none.
    """
    between = {each.kind: 1 - each.rate for each in rates if each.attempts >= min_attempts and low <= each.rate <= high}
    total = sum(between.values())
    if not total:
        seen = ", ".join(f"{each.kind or 'all'} {each.rate:.2f} of {each.attempts}" for each in rates) or "no attempts"
        raise DataError(
            f"no kind of task has failures and a success from {low:g} to {high:g} over {min_attempts} attempts ({seen})"
            "; widen the bounds, or measure more attempts"
        )
    weights = {kind: failures / total for kind, failures in between.items()}
    return Targets(low=low, high=high, min_attempts=min_attempts, rates=tuple(rates), weights=weights)
