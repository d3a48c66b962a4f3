"""Deaths and replacements of a run's processes, as notes of the run and as a metric of its steps."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from turnwise.core.events import Event, Note, StepEnds
from turnwise.core.notices import PROCESSES
from turnwise.core.protocols import Recorder

LOST = "processes/lost"


class ProcessNotes(logging.Handler):
    """A recorder before others that also passes on what is told of processes, from any thread, on the event loop."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.INFO)
        self._recorder = recorder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: deque[logging.LogRecord] = deque()
        self._num_lost = 0

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Pass on what is told meanwhile; of an event loop that runs."""
        self._loop, level = asyncio.get_running_loop(), PROCESSES.level
        PROCESSES.addHandler(self)
        PROCESSES.setLevel(logging.INFO)
        try:
            yield
        finally:
            PROCESSES.removeHandler(self)
            PROCESSES.setLevel(level)
            self._pass_on()

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        self._told.append(record)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._pass_on)

    def record(self, event: Event) -> None:
        """See `Recorder.record`; a trained step says how many processes were lost since the one before."""
        self._pass_on()
        if isinstance(event, StepEnds) and event.phase == "train":
            event = replace(event, values={**event.values, LOST: float(self._num_lost)})
            self._num_lost = 0
        self._recorder.record(event)

    def _pass_on(self) -> None:
        while self._told:
            record = self._told.popleft()
            self._num_lost += record.levelno >= logging.WARNING
            self._recorder.record(Note(kind="process", text=record.getMessage()))
