"""Reads a run's attempts, and writes new tasks near those that failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from turnwise.building.families import build_family
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.roles import learns, split_roles
from turnwise.core.types import TrajectoryGroup
from turnwise.credit.shaping import read_metric
from turnwise.environments.draws import find_tasks
from turnwise.reporting.summaries import is_control, load_summaries
from turnwise.runs.evaluate import load_run
from turnwise.runs.sft import first_rl_task
from turnwise.store.groups import GroupStore
from turnwise.store.journal import DrawRecord, JournalState, read_journal
from turnwise_synthesis.failures.making import KnownContent, list_entities, make_tasks, share_out
from turnwise_synthesis.failures.rates import KindRate, choose_targets, measure_groups
from turnwise_synthesis.failures.task_file import TaskFile, write_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be made."""

    count: int = 1000
    """Number of tasks."""
    low: float = 0.1
    high: float = 0.9
    """Kinds count as targets whose success is from `low` to `high`."""
    steps: int = 10
    """Last steps whose groups are measured; 0 measures the last evaluation instead."""
    metric: str = "success"
    min_attempts: int = 20
    by: tuple[str, ...] = ("kind",)
    """Fields of a task's payload that tell kinds apart."""
    entities: tuple[str, ...] = ("question", "answers")
    """Fields whose names a new task must not share with a held-out one or one of the run."""
    heldout: int = 1000
    """Number of held-out tasks with which nothing may be shared, at least those that the run evaluates."""


def write_failures(run: Path, output: Path, wanted: Wanted) -> TaskFile:
    """Write new tasks near the run's failures, and return the content of the file.

    Raises ConfigError for a mixture, DataError if no kind is a target or no task could be made, StoreError for a run
    that cannot be read.
    """
    folder, config = load_run(run)
    if config.environment.mixture:
        raise ConfigError("environment.mixture: tasks near failures are made of one environment; name a run of one")
    family, journal = build_family(config), read_journal(folder.path)
    rates = _measure(folder.path, journal, wanted)
    targets = choose_targets(rates, low=wanted.low, high=wanted.high, min_attempts=wanted.min_attempts)
    made = make_tasks(
        family,
        rates,
        share_out(targets.weights, wanted.count),
        _collect_known(config, family, journal, folder.path, wanted),
        first=max(first_rl_task(config), journal.next_task),
        by=wanted.by,
        entity_fields=wanted.entities,
    )
    plan = {
        "environment": config.environment.name,
        "args": dict(config.environment.args),
        "run": str(folder.path),
        "step": max(journal.trained, default=0),
        "wanted": asdict(wanted),
        "rates": [_describe(each) for each in rates],
        "weights": targets.weights,
    }
    content = TaskFile(plan=plan, made=made)
    if not made.tasks:
        raise DataError(f"no task could be made; of those that were looked at: {dict(made.outcomes)}")
    write_tasks(output, content)
    return content


def _describe(rate: KindRate) -> dict[str, object]:
    low, high = rate.interval
    return {"of": rate.kind, "rate": rate.rate, "attempts": rate.attempts, "low": low, "high": high}


def _measure(run: Path, journal: JournalState, wanted: Wanted) -> list[KindRate]:
    """Return the rates of the last steps' groups, dropped ones included, or of the last evaluation."""
    if wanted.steps:
        records = _list_recent(journal, wanted.steps)
        return measure_groups(
            _load_groups(run, records), lambda group: read_metric(group, wanted.metric, "--metric"), by=wanted.by
        )
    if wanted.by != ("kind",):
        raise ConfigError(f"--by {','.join(wanted.by)}: evaluations know the field 'kind' only; use --steps")
    summaries = [summary for summary in load_summaries(run) if not is_control(summary)]
    if not summaries:
        raise DataError(f"{run} has no evaluation; use --steps to measure its groups")
    rows = [row for row in summaries[-1]["rows"] if row["kind"] != "all"] or summaries[-1]["rows"]
    return [KindRate(kind=row["kind"], solved=row["success"] * row["n"], attempts=row["n"]) for row in rows if row["n"]]


def _list_recent(journal: JournalState, steps: int) -> list[DrawRecord]:
    last = max(journal.trained, default=0)
    return [
        record
        for record in journal.draws.values()
        if record.digest is not None and record.step is not None and last - steps < record.step <= last
    ]


def _load_groups(run: Path, records: list[DrawRecord]) -> Iterator[TrajectoryGroup]:
    store = GroupStore(run)
    for record in records:
        for part in split_roles(store.load(record.draw, digest=record.digest)):
            if learns(part):
                yield part


def _collect_known(
    config: RunConfig, family: EnvironmentFamily, journal: JournalState, run: Path, wanted: Wanted
) -> KnownContent:
    heldout: set[str] = set()
    for _, task in find_tasks(family, "heldout", max(wanted.heldout, config.evaluate.tasks)):
        heldout |= list_entities(task, wanted.entities)
    drawn: set[str] = set()
    records = _list_recent(journal, wanted.steps) if wanted.steps else []
    for group in _load_groups(run, records):
        drawn |= list_entities(group.task, wanted.entities)
    return KnownContent(heldout=frozenset(heldout), drawn=frozenset(drawn))
