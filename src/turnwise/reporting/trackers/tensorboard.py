"""TensorBoard's event files, written by the package `tensorboard` alone: neither torch nor TensorFlow takes part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnwise.reporting.trackers.tracker import Point, Table, TrackedRun, clean_text


class TensorboardTracker:
    """Implements `Tracker`. The id is the folder of the event files; every run that is started gets a new one."""

    def __init__(self) -> None:
        self._writer: Any = None

    def open(self, run: TrackedRun, id: str | None) -> str:
        """See `Tracker.open`."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        directory = run.trackers.tensorboard.dir
        folder = Path(directory) / run.name if directory else run.path / "tensorboard"
        folder = _unused(folder.absolute()) if id is None else _find_again(run, id)
        self._writer = EventFileWriter(str(folder), flush_secs=10)
        if id is None:
            summary = hparams_pb({name: _tidy(value) for name, value in run.options().items()}, trial_id=run.name)
            self._add(summary, step=0, time=(run.path / "config.json").stat().st_mtime)
        return str(folder)

    def log(self, point: Point) -> None:
        """See `Tracker.log`."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
        self._add(Summary(value=values), step=point.step, time=point.time)

    def show(self, table: Table) -> None:
        """See `Tracker.show`."""
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(text_pb(table.name, clean_text(table.to_markdown())), step=table.step, time=table.time)

    def flush(self) -> None:
        """See `Tracker.flush`."""
        self._writer.flush()

    def close(self) -> None:
        """See `Tracker.close`."""
        self._writer.close()

    def _add(self, summary: Any, *, step: int, time: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(summary=summary, step=step, wall_time=time))


def _find_again(run: TrackedRun, id: str) -> Path:
    """The folder with that id; looked up in the run folder, which may have been moved, if it was there."""
    folder = Path(id)
    is_within = folder.name.startswith("tensorboard") and not run.trackers.tensorboard.dir
    return run.path / folder.name if is_within else folder


def _unused(folder: Path) -> Path:
    """The folder, or the first of `folder-2`, `folder-3`, ... if it contains files already."""
    number = 1
    path = folder
    while path.exists() and any(path.iterdir()):
        number += 1
        path = folder.with_name(f"{folder.name}-{number}")
    return path


def _tidy(value: bool | int | float | str) -> bool | int | float | str:
    return clean_text(value) if isinstance(value, str) else value
