"""Trackio, on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun, clean_text

ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WEBHOOK_URL")
"""Environment variables that make Trackio send its data over the network."""


class TrackioTracker:
    """Implements `Tracker`. The id is the run's name in its project."""

    def __init__(self) -> None:
        self._run: Any = None

    def open(self, run: TrackedRun, id: str | None) -> str:
        """See `Tracker.open`."""
        import trackio

        with at_home():
            self._run = trackio.init(
                project=run.trackers.project,
                name=run.name if id is None else id,
                config={name: clean_text(str(v)) if isinstance(v, str) else v for name, v in run.options().items()},
                resume="never" if id is None else "must",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        return str(self._run.name)

    def log(self, point: Point) -> None:
        """See `Tracker.log`."""
        self._run.log(dict(point.values), step=point.step)

    def show(self, table: Table) -> None:
        """See `Tracker.show`."""
        import trackio

        self._run.log({table.name: trackio.Markdown(clean_text(table.to_markdown()))}, step=table.step)

    def flush(self) -> None:
        """See `Tracker.flush`: Trackio writes its data within a second, in its own thread."""

    def close(self) -> None:
        """See `Tracker.close`."""
        self._run.finish()


@contextmanager
def at_home() -> Iterator[None]:
    """Hide the variables `ELSEWHERE`, which were set for other programs."""
    hidden = {name: os.environ.pop(name) for name in ELSEWHERE if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
