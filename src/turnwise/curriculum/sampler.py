"""What a sampler is given, what it returns, and its row in a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from turnwise.config.section import Section

NEW = "new"
"""Pool of tasks that were never drawn."""
NUM_LUCKY = 4
"""Number of uniform numbers that a sampler gets for each choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What one group of attempts at a task earned."""

    task: int
    """Index of the task in the training split."""
    kind: str
    """Its kind; empty if tasks have none."""
    rewards: tuple[float, ...]
    """Of every attempt that was scored, as `curriculum.metric` says; at least one, all finite."""
    step: int
    """The step for which the group was collected."""

    @property
    def mean(self) -> float:
        """Mean reward; the solve rate where rewards are 0 and 1."""
        return math.fsum(self.rewards) / len(self.rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which task to draw."""

    pool: str
    """What it is drawn for, such as "hard": journal and metrics tell draws apart by it."""
    again: int | None = None
    """Index of a task that was drawn before; None draws a new one."""
    kind: str | None = None
    """Kind of the new task; None takes the next one in the order of the split."""


class OfferedTasks(Protocol):
    """The tasks that can be drawn now: neither being played nor left out."""

    def kinds(self) -> Sequence[str]:
        """Return the kinds that occur among the tasks drawn before and the next new ones, in alphabetical order."""
        ...

    def has_new(self, kind: str | None = None) -> bool:
        """Whether a task (of this kind) that was never drawn is among the next ones of the split."""
        ...

    def is_free(self, task: int) -> bool:
        """Whether this task, which was drawn before, can be drawn again."""
        ...

    def repeats(self, kind: str | None = None) -> Sequence[int]:
        """Return the tasks (of this kind) that can be drawn again and were drawn least often, in order."""
        ...


class Sampler(Protocol):
    """Chooses tasks. Its choices depend on its options, on the results it observed and on `luck` alone."""

    def choose(self, offered: OfferedTasks, luck: Sequence[float]) -> Choice | None:
        """Return which task to draw; None if there is none. `luck` is `NUM_LUCKY` numbers in [0, 1)."""
        ...

    def observe(self, results: Sequence[TaskResult], step: int) -> None:
        """Take in the results of a step, in the order of their draws."""
        ...

    def measure(self) -> Mapping[str, float]:
        """Return numbers that describe its state, by name, for the metrics `curriculum/NAME`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what it learned, as JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        ...


class NoOptions(Section):
    """Options of a sampler that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerKind:
    """One row of samplers, named in `curriculum.sampler`: built in, offered by an installed package, or at the import
    path "package.module:NAME"."""

    name: str
    summary: str
    formula: str = ""
    paper: str = ""
    """Where the formula comes from; empty if it has no source."""
    options: type[Section] = NoOptions
    """What `curriculum.options` may hold."""
    build: Callable[[Any], Sampler] | None
    """Builds the sampler from an object of `options`; None draws the tasks in the order of the split, each once."""
