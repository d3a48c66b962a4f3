"""Takes further tasks of a training split: of the kinds that are wanted, and sharing nothing with held-out ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.protocols import EnvironmentFamily
from turnwise.core.types import Task
from turnwise.environments.draws import LeftOut, try_task
from turnwise_synthesis.failures.rates import KindRate, name_kind

MAX_TRIED = 200
"""Most tasks that are looked at for each one that is wanted."""
MIN_WORDS = 4
"""Fewest words of a text that no two tasks may share; a short answer may be that of many tasks."""
_NAME = re.compile(r"\b[^\W\d_a-z][\w'-]*(?: [^\W\d_a-z][\w'-]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTask:
    """A new task."""

    index: int
    """Its index in the training split of the family."""
    id: str
    kind: str
    near: str
    """Name of a failed task of this kind; empty if none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTasks:
    """New tasks, and what became of those that were looked at."""

    tasks: tuple[MadeTask, ...]
    outcomes: Mapping[str, int]
    """Number of tasks by what became of them: "made", or why not."""
    missing: Mapping[str, int]
    """Number of wanted tasks by kind that were not found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownContent:
    """What new tasks must not contain again."""

    heldout: frozenset[str]
    """Entities of held-out tasks, and their names."""
    drawn: frozenset[str]
    """Entities of the tasks that failed or were drawn, and their names."""


def list_entities(task: Task, fields: Sequence[str]) -> set[str]:
    """Return the names in the texts of these fields of a task's payload, the texts of at least `MIN_WORDS` words
    themselves, and the task's own name, in lower case.

    A name is a run of words that begin with capitals; one word at the beginning of a longer text is none."""
    texts = [text for name in fields for text in _list_texts(task.payload.get(name))]
    whole = {text.casefold() for text in texts if len(text.split()) >= MIN_WORDS}
    return {task.id} | whole | {name.casefold() for text in texts for name in _list_names(text)}


def _list_names(text: str) -> Iterator[str]:
    for match in _NAME.finditer(text):
        if match.start() or " " in match[0] or match[0] == text:
            yield match[0]


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield " ".join(value.split())
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _list_texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _list_texts(each)


def share_out(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """Return how many of `count` each key gets by its weight: whole parts first, then the largest remainders."""
    total = sum(weights.values())
    exact = {key: count * weight / total for key, weight in weights.items()}
    shares = {key: int(value) for key, value in exact.items()}
    rest = sorted(exact, key=lambda key: (shares[key] - exact[key], key))
    for key in rest[: count - sum(shares.values())]:
        shares[key] += 1
    return shares


def make_tasks(
    family: EnvironmentFamily,
    rates: Sequence[KindRate],
    wanted: Mapping[str, int],
    known: KnownContent,
    *,
    first: int,
    by: Sequence[str],
    entity_fields: Sequence[str],
) -> MadeTasks:
    """Look through the training split from task `first` on until every kind has its number of tasks, the split ends, or
    `MAX_TRIED` tasks for each wanted one were looked at."""
    left, outcomes = Counter({kind: count for kind, count in wanted.items() if count}), Counter[str]()
    failed = {each.kind: each.failed for each in rates}
    made: list[MadeTask] = []
    seen: set[str] = set()
    for index in range(first, first + MAX_TRIED * left.total()):
        if not left:
            break
        try:
            task = try_task(family, "train", index)
        except IndexError:
            outcomes["split ended"] += 1
            break
        kind = "" if isinstance(task, LeftOut) else name_kind(task, by)
        if isinstance(task, LeftOut):
            outcomes["cannot be made"] += 1
        elif not left[kind]:
            outcomes["other kind"] += 1
        elif (entities := list_entities(task, entity_fields)) & known.heldout:
            outcomes["shares an entity with a held-out task"] += 1
        elif entities & known.drawn or task.id in seen:
            outcomes["shares an entity with a task of the run"] += 1
        else:
            near = failed.get(kind, ())
            place = wanted[kind] - left[kind]
            made.append(MadeTask(index=index, id=task.id, kind=kind, near=near[place % len(near)] if near else ""))
            seen.add(task.id)
            outcomes["made"] += 1
            left -= Counter({kind: 1})
    return MadeTasks(tasks=tuple(made), outcomes=dict(outcomes), missing=dict(left))
