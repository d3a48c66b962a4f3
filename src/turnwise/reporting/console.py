"""Show the progress of a run: a live line with the main numbers, or plain lines if there is no terminal.

Progress goes to standard error; standard output is for results. A display never fails a run: what cannot be shown is
left out."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from turnwise.core.events import Evaluated, Event, Note, PhaseBegins, StepEnds
from turnwise.reporting.summaries import describe_behaviour, format_success, kinds_of, row_of
from turnwise.reporting.transcript import clean_for_terminal

PLAIN_INTERVAL_S = 2.0
"""Minimum seconds between two lines without a terminal."""

SHOWN = (
    ("cpt/loss", "loss {:.3f}"),
    ("sft/loss", "loss {:.3f}"),
    ("sft/heldout_loss", "held-out loss {:.3f}"),
    ("rollout/reward", "reward {:.2f}"),
    ("rollout/success", "success {:.2f}"),
    ("rollout/tool_calls", "calls {:.2f}"),
    ("rollout/tokens_per_s", "tok/s {:,.0f}"),
)
"""The metrics shown, in order, each with its format."""


class _ToleratesBrokenPipe(Console):
    """Stops writing when its reader closes the pipe, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class Display:
    """Shows one run: `with Display(total_steps=60, title="demo") as show: show.phase("rollout"); show.update(1,
    values)`."""

    def __init__(
        self,
        *,
        total_steps: int,
        title: str,
        enabled: bool = True,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Show `total_steps` RL steps, or nothing if not `enabled`. `console` replaces standard error; `clock` gives
        seconds.

        Without a terminal, or if NO_COLOR or CI is set, plain lines replace the live line.
        """
        self._console = console or _ToleratesBrokenPipe(stderr=True, highlight=False)
        self._enabled = enabled
        self._live = enabled and self._console.is_terminal and not (os.environ.get("NO_COLOR") or os.environ.get("CI"))
        self._title = title
        self._total_steps = total_steps
        self._clock = clock
        self._started = clock()
        self._section = ""
        self._section_total: int | None = None
        self._first: tuple[int, float] | None = None
        self._last_line = -math.inf
        columns = [
            TextColumn("[bold]{task.description}", markup=True),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[numbers]}"),
        ]
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("", total=None, numbers="")

    def __enter__(self) -> Display:
        if self._live:
            with contextlib.suppress(OSError, ValueError):
                self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            with contextlib.suppress(OSError, ValueError):
                self._progress.stop()

    def record(self, event: Event) -> None:
        """See `core.protocols.Recorder`: phases, steps, notes and evaluations are shown."""
        match event:
            case PhaseBegins():
                self.phase(event.phase, total=event.total)
            case StepEnds():
                if event.phase != "evaluate":
                    self.update(event.step, event.values)
            case Note():
                if event.kind != "device":
                    self.note(event.text)
            case Evaluated():
                row = next(row for row in event.summary["rows"] if row["kind"] == "all")
                self.note(f"held-out success {event.label}: {format_success(row)} on {row['n']} tasks")

    def phase(self, name: str, *, total: int | None = None) -> None:
        """Enter a phase: "cpt" or "sft" of `total` steps, "rollout", "train", or "evaluate" of unknown length."""
        section = name if name in ("cpt", "sft", "evaluate") else "step"
        if section != self._section:
            self._section, self._first = section, None
            self._last_line = -math.inf
            self._section_total = total if total is not None or section != "step" else self._total_steps
            self._progress.update(self._task, total=self._section_total, completed=0, numbers="")
        self._progress.update(self._task, description=f"{self._title} · {name}".replace("[", "\\["))

    def update(self, step: int, values: Mapping[str, float | None]) -> None:
        """Show that step `step`, counted from 1, has finished with these metrics."""
        now = self._clock()
        total = self._section_total or self._total_steps
        # What precedes the first one may take minutes that later steps do not: demonstrations, an evaluation.
        first, began = self._first = self._first or (step, now)
        words = [f"{self._section or 'step'} {step}/{total}", format_numbers(values)]
        if step > first:
            words.append(f"left {format_seconds((now - began) / (step - first) * max(0, total - step))}")
        text = "  ".join(word for word in words if word)
        if self._live:
            elapsed = format_seconds(now - self._started)
            self._progress.update(self._task, total=total, completed=step, numbers=f"{text}  elapsed {elapsed}")
        elif now - self._last_line >= PLAIN_INTERVAL_S or step == total:
            self._last_line = now
            self._print(text)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._print(f"[{format_seconds(self._clock() - self._started)}] {text}")

    def _print(self, text: str) -> None:
        if self._enabled:
            with contextlib.suppress(OSError, ValueError):
                self._console.print(clean_for_terminal(text), markup=False, soft_wrap=True)


def format_numbers(values: Mapping[str, float | None]) -> str:
    """Format the metrics of `SHOWN` that are present and finite."""
    numbers = ((values.get(name), text) for name, text in SHOWN)
    return "  ".join(text.format(value) for value, text in numbers if value is not None and math.isfinite(value))


def format_seconds(seconds: float) -> str:
    """Format 75 as `1m15s`."""
    whole = round(max(0.0, seconds))
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def results_table(summaries: Sequence[Mapping[str, Any]]) -> Table:
    """Tabulate held-out success per kind of task with 95% intervals, two columns per evaluation.

    `summaries` are as in `evaluations/*.summary.json`; a kind missing from one of them is shown as "-".
    """
    table = Table(title="held-out success [95% interval] and tool calls per question")
    table.add_column("questions", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    for summary in summaries:
        table.add_column(str(summary["label"]).replace("[", "\\["), justify="right")
        table.add_column("calls", justify="right", style="dim", no_wrap=True)
    for kind in kinds_of(summaries):
        rows = [row_of(summary, kind) for summary in summaries]
        cells: list[str] = []
        for row in rows:
            cells += (
                ["-", "-"] if row is None else [format_success(row).replace("[", "\\["), f"{row['tool_calls']:.2f}"]
            )
        count = max((row["n"] for row in rows if row is not None), default=0)
        table.add_row(kind.replace("[", "\\["), str(count), *cells, style="bold" if kind == "all" else None)
    table.caption = "\n".join(text.replace("[", "\\[") for text in map(describe_behaviour, summaries) if text) or None
    return table


def print_table(table: Table) -> None:
    """Print to standard output: at the width of the terminal or, without one, at the width of the table, so that a
    pipe or a file gets every column in full."""
    Console(width=None if sys.stdout.isatty() else find_width(table)).print(table)


def find_width(table: Table) -> int:
    """Number of columns that a table takes without wrapping a cell."""
    return max(80, Console(width=10_000).measure(table).maximum)
