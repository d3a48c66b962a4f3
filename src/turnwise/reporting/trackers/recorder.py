"""Trackers as recorders of a run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from turnwise.core.events import Evaluated, Event, GroupEnds, Note, PhaseBegins, StepEnds
from turnwise.reporting.trackers.follow import tracker_file


class TrackerRecorder:
    """Tells the process of one tracker that the run folder has new data. Neither waits for it nor fails with it.

    The process starts with the first event that the folder stores. A process that ends early is reported once.
    """

    def __init__(self, run: Path, name: str, *, report: Callable[[Event], None]) -> None:
        """`report` receives the note about a tracker that failed."""
        self._run = run.absolute()
        self._name = name
        self._report = report
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def record(self, event: Event) -> None:
        """See `core.protocols.Recorder`. Call it after the run folder's recorder."""
        match event:
            case PhaseBegins() | GroupEnds():
                return
            case StepEnds() | Evaluated() | Note():
                self._wake()

    def _wake(self) -> None:
        if self._is_over:
            return
        if self._process is None:
            self._start()
        elif self._process.poll() is not None:
            self._give_up(self._last_words())
        if self._process is not None and self._process.stdin is not None:
            # A full pipe holds more wake-ups than a hanging tracker deserves.
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(self._process.stdin.fileno(), b"\n")

    def _start(self) -> None:
        command = [sys.executable, "-m", "turnwise.reporting.trackers.follow", str(self._run), self._name]
        try:
            log = tracker_file(self._run, self._name, "log")
            log.parent.mkdir(exist_ok=True)
            with log.open("ab") as output:
                # A session of its own: an interrupt at the terminal is not for it, and its children end with it.
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
                )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        except OSError as cause:
            self._give_up(f"cannot start: {cause}")

    def end_input(self) -> None:
        """Let the process send the rest and finish, without waiting for it."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def close(self, deadline: float) -> None:
        """Wait for the end of the process until `deadline` (of `time.monotonic`), then kill it."""
        self.end_input()
        if self._process is None or self._is_over:
            return
        try:
            code = self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._kill()
            self._give_up("did not finish in time (trackers.close_timeout_s)")
            return
        except BaseException:
            self._kill()
            raise
        if code:
            self._give_up(self._last_words())
        self._is_over = True

    def _kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)

    def _last_words(self) -> str:
        """The last line of the process's output."""
        try:
            lines = tracker_file(self._run, self._name, "log").read_bytes()[-4000:].decode("utf-8", "replace")
        except OSError:
            lines = ""
        last = next((line for line in reversed(lines.splitlines()) if line.strip()), "it said nothing")
        return last.removeprefix("error: ").removeprefix(f"tracker {self._name}: ")

    def _give_up(self, reason: str) -> None:
        self._is_over = True
        self._report(
            Note(
                kind="tracker",
                text=f"tracker {self._name}: {reason}; metrics stay in the run folder; `turnwise track {self._run} "
                f"--to {self._name}` sends them again",
            )
        )


def close_trackers(trackers: Sequence[TrackerRecorder], timeout_s: float) -> None:
    """Let all of them finish in parallel, within `timeout_s` seconds altogether."""
    deadline = time.monotonic() + timeout_s
    for tracker in trackers:
        tracker.end_input()
    for tracker in trackers:
        tracker.close(deadline)
