"""The process of one tracker: `python -m turnwise.reporting.trackers.follow RUN NAME`.

It sends what is new in the run folder at every byte on its standard input, and at least every `POLL_S` seconds. At the
end of its input, which comes when the run ends or its process dies, it sends the rest and finishes, or is killed by its
own alarm after `trackers.close_timeout_s`."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from turnwise.config.shown import read_shown
from turnwise.core.errors import StoreError, TrackerError, TurnwiseError, boundary
from turnwise.reporting.trackers.lock import hold
from turnwise.reporting.trackers.registry import build_tracker
from turnwise.reporting.trackers.send import Sender, Sent
from turnwise.reporting.trackers.tracker import TrackedRun
from turnwise.store.run_folder import RunFolder

POLL_S = 5.0
LOCK_S = 60.0
"""Seconds to wait for the process that sends the run to the same tracker, such as that of a run that was killed."""


def tracker_file(run: Path, name: str, ending: str) -> Path:
    """Suffix of the file `trackers/NAME.ENDING` in the run folder."""
    return run / "trackers" / f"{name.replace(':', '.')}.{ending}"


def send_run(run: Path, name: str, *, overrides: list[str], start_anew: bool) -> str:
    """Send a stored run to a tracker: what is missing there, or everything to a new run. Returns the tracker's id.

    `overrides` change the recipe's options, as in "trackers.project=mine". Raises ConfigError for the tracker's
    name or package, TrackerError when it fails, StoreError for the run folder.
    """
    with _opened(run, name, overrides=overrides, start_anew=start_anew) as (sender, id):
        sender.send()
        return id


def follow_run(run: Path, name: str) -> None:
    """Send a run while it grows, until standard input ends."""
    with _opened(run, name, overrides=[], start_anew=False) as (sender, _):
        is_growing = True
        while is_growing:
            if select.select([0], [], [], POLL_S)[0]:
                is_growing = bool(os.read(0, 1 << 16))
            if not is_growing:  # the kernel ends this process once the time to finish is up
                signal.alarm(math.ceil(sender.run.trackers.close_timeout_s))
            sender.send()


@contextmanager
def _opened(run: Path, name: str, *, overrides: list[str], start_anew: bool) -> Iterator[tuple[Sender, str]]:
    """The sender for an opened tracker, which is closed at the end, and the tracker's id for the run."""
    folder = RunFolder.open(run.absolute())
    tracked = TrackedRun(path=folder.path, recipe=read_shown(folder.path / "config.json", overrides))
    tracker = build_tracker(name)
    with _locked(run, name), boundary(TrackerError, f"tracker {name}"):
        path = tracker_file(folder.path, name, "json")
        sender = Sender(tracked, tracker, Sent(path=path) if start_anew else Sent.load(path))
        id = sender.open()
        try:
            yield sender, id
        finally:
            tracker.close()


@contextmanager
def _locked(run: Path, name: str) -> Iterator[None]:
    """Keep other processes from sending the run to the same tracker."""
    path = tracker_file(run, name, "lock")
    path.parent.mkdir(exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(hold(path, LOCK_S))
        except TimeoutError:
            raise StoreError(
                f"another process is sending {run} to {name}; wait for it to finish, or stop it first"
            ) from None
        yield


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the training process decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        follow_run(Path(sys.argv[1]), sys.argv[2])
    except TurnwiseError as error:
        sys.exit(f"error: {error}")
