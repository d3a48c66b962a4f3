"""Where a run's events go: the run folder, and whatever else listens."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from turnwise.config.run import RunConfig
from turnwise.core.events import Event, GroupEnds, Note, PhaseBegins, StepEnds
from turnwise.core.protocols import Recorder
from turnwise.reporting.trackers.recorder import TrackerRecorder, close_trackers
from turnwise.store.run_folder import RunFolder

_ONE_AT_A_TIME = threading.RLock()
"""Events come from the run's thread, and from the one that watches who holds its event loop."""


class Recorders:
    """Passes every event to several recorders, in order. The first is the one that must keep it."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = tuple(recorders)

    def record(self, event: Event) -> None:
        """See `Recorder.record`."""
        with _ONE_AT_A_TIME:
            for recorder in self._recorders:
                recorder.record(event)


class FolderRecorder:
    """Writes metrics and notes into the run folder; groups and evaluations have files of their own."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def record(self, event: Event) -> None:
        """See `Recorder.record`."""
        match event:
            case StepEnds():
                self._folder.append_metrics(event.step, event.phase, event.values)
            case Note():
                self._folder.append_event(event.kind, event.text)
            case PhaseBegins() | GroupEnds() | _:
                pass


@contextmanager
def open_trackers(config: RunConfig, folder: RunFolder, show: Recorder) -> Iterator[Recorder]:
    """`show` and the recipe's trackers, which finish at the end. They come after the folder's own recorder."""
    report = Recorders([FolderRecorder(folder), show]).record
    trackers = [TrackerRecorder(folder.path, name, report=report) for name in config.trackers.names]
    try:
        yield Recorders([show, *trackers])
    finally:
        close_trackers(trackers, config.trackers.close_timeout_s)
