"""The interface of a tracker, and the data it receives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from turnwise.config.shown import ShownRecipe
from turnwise.config.trackers import TrackersSection


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """The run to be shown in a tracker."""

    path: Path
    """The run folder, absolute."""
    recipe: ShownRecipe

    @property
    def trackers(self) -> TrackersSection:
        """The recipe's section on trackers."""
        return self.recipe.trackers

    @property
    def name(self) -> str:
        """The run's name: that of its folder."""
        return self.path.name

    def options(self) -> dict[str, bool | int | float | str]:
        """The recipe as flat options, `{"train.lr": 0.001, ...}`; lists and null as JSON."""
        return dict(_flatten(self.table(), ""))

    def table(self) -> dict[str, Any]:
        """The recipe section by section, without the section on trackers."""
        return {name: section for name, section in self.recipe.table.items() if name != "trackers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Metrics of one step."""

    number: int
    """Number of the point or table in the tracker's run, counted from 0, also across several processes."""
    step: int
    """The step of the phase: the x-axis of every metric."""
    time: float
    """Unix seconds."""
    values: Mapping[str, float]
    """Finite numbers by name, such as "rollout/reward"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text for a step: results with intervals, transcripts, notes."""

    number: int
    """See `Point.number`."""
    name: str
    step: int
    time: float
    """Unix seconds."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> str:
        """The rows as a table, or as one section per row if a cell has several lines; text stays text."""
        if any("\n" in cell for row in self.rows for cell in row):
            return "\n\n".join(_section(self.columns, row) for row in self.rows)
        lines = [self.columns, tuple("---" for _ in self.columns), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


class Tracker(Protocol):
    """One tracker in its own process. An exception from its methods ends the tracker, never the run."""

    def open(self, run: TrackedRun, id: str | None) -> str:
        """Start a run in the tracker (`id` None), or continue the run with that id. Returns the id."""
        ...

    def log(self, point: Point) -> None:
        """Show metrics."""
        ...

    def show(self, table: Table) -> None:
        """Show text."""
        ...

    def flush(self) -> None:
        """Return when everything so far would survive the end of this process."""
        ...

    def close(self) -> None:
        """Finish the run in the tracker."""
        ...


def clean_text(text: str) -> str:
    """The text with what UTF-8 cannot hold replaced by "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _section(columns: Sequence[str], row: Sequence[str]) -> str:
    """Short cells in one line, long ones as indented blocks, which no tracker reads as markup."""
    short = ", ".join(f"{name}: {cell}" for name, cell in zip(columns, row, strict=True) if "\n" not in cell)
    blocks = ["\n".join(f"    {line}" for line in cell.splitlines()) for cell in row if "\n" in cell]
    return "\n\n".join([short, *blocks])


def _flatten(value: Any, prefix: str) -> list[tuple[str, bool | int | float | str]]:
    if isinstance(value, Mapping):
        return [pair for key, item in value.items() for pair in _flatten(item, f"{prefix}.{key}" if prefix else key)]
    return [(prefix, value if isinstance(value, bool | int | float | str) else json.dumps(value))]
