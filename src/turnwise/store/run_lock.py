"""One process at a time writes a run folder; readers need no lock.

    writer.lock    an empty file that the writer keeps locked (flock): the kernel lets go when the process ends
    writer.json    who writes: machine, process, start, and a count that grows every `BEAT_S`; gone after a clean end

On one machine the lock alone decides, however the last writer ended. A file system may limit locks to one machine, or
have none: a writer on another machine counts as alive until its count has not changed for `LEASE_S`, by the reader's
clock. A writer that slept so long that another took over finds the other's name before its next decision and stops
(`RunLock.check`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from turnwise.core.errors import StoreError
from turnwise.store.run_folder import LOCK, WRITER, disk_error

BEAT_S = 5.0
"""Seconds between two signs of life."""
LEASE_S = 30.0
"""Seconds without a sign of life after which a writer on another machine has ended."""
POLL_S = 0.2
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""Error numbers of file systems without locks."""
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The process that writes a run folder."""

    host: str
    process: int
    started: str
    """Local time of the start, with its UTC offset."""
    boot: str
    """Boot id of the machine's kernel, which two containers on one machine share."""
    token: str
    """Identifies this lock on the folder."""
    beats: int = 0

    def describe(self) -> str:
        """Describe the writer for messages."""
        return f"process {self.process} on {self.host} (since {self.started})"


class RunLock:
    """This process's lock on a run folder."""

    def __init__(self, run: Path, writer: Writer) -> None:
        self._run, self._writer = run, writer
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._confirmed_s = -LEASE_S
        """When the folder was last confirmed to belong to this process; the first decision checks, as two may have
        started at once."""
        self._thread = threading.Thread(target=self._beat, name="turnwise.run_lock", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise StoreError if another process took the folder over, as it may while this one, or its machine, sleeps.
        Called before a decision is written."""
        with self._lock:
            if _now() - self._confirmed_s < LEASE_S / 2:
                return
            self._confirm()

    def close(self) -> None:
        """Release the lock."""
        self._ended.set()
        self._thread.join()
        with suppress(StoreError), self._lock:
            self._confirm()
            with suppress(OSError):
                (self._run / WRITER).unlink(missing_ok=True)

    def _confirm(self) -> None:
        found = read_writer(self._run)
        if found is None or found.token != self._writer.token:
            who = "another process" if found is None else found.describe()
            raise StoreError(
                f"{self._run} was taken over by {who}, because this process ({self._writer.process} on "
                f"{self._writer.host}) showed no activity for more than {LEASE_S:g} s; this process stops, and what it "
                "stored is kept"
            )
        self._confirmed_s = _now()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            # A file system that hangs or is full now may work again; `check` finds a process that takes over meanwhile.
            with suppress(StoreError, OSError), self._lock:
                self._confirm()
                self._writer = replace(self._writer, beats=self._writer.beats + 1)
                _write(self._run, self._writer)


@contextmanager
def hold_run(run: Path, *, wait_s: float = 0.0, tell: Tell | None = None) -> Iterator[RunLock]:
    """Hold the lock as the only process that writes the folder `run`.

    Args:
        wait_s: seconds to wait for a process that writes it.
        tell: called once with the process that this waits for.

    Raises StoreError naming machine and process if another one still writes it after that, or when the disk refuses.
    """
    try:
        handle = os.open(run / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as cause:
        raise disk_error("lock", run / LOCK, cause) from cause
    try:
        lock = RunLock(run, _take(run, handle, wait_s=wait_s, tell=tell or (lambda text: None)))
        try:
            yield lock
        finally:
            lock.close()
    finally:
        os.close(handle)


def read_writer(run: Path) -> Writer | None:
    """Return the process that writes the folder, or that wrote it when it was killed; None if there is none, or the
    file cannot be read."""
    try:
        return Writer(**json.loads((run / WRITER).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _take(run: Path, handle: int, *, wait_s: float, tell: Tell) -> Writer:
    """Wait for the folder and write this process's name into it."""
    writer, deadline = _describe_self(), _now() + wait_s
    seen, seen_s, is_alive, has_told = read_writer(run), _now(), False, False
    while True:
        is_locked, found, now = _lock(run, handle), read_writer(run), _now()
        if found != seen:
            is_alive = found is not None
            seen, seen_s = found, now
        is_taken = is_locked is False
        # The last writer's kernel has released the lock, so that writer has ended.
        is_free = found is None or (is_locked and found.boot == writer.boot) or now - seen_s >= LEASE_S
        if not is_taken and is_free:
            break
        if (is_taken or is_alive) and now >= deadline:
            raise StoreError(_describe_refusal(run, found))
        if not has_told:
            has_told = True
            tell(_describe_waiting(run, found, wait_s, is_taken=is_taken))
        _sleep(POLL_S)
    _write(run, writer)
    return writer


def _describe_refusal(run: Path, found: Writer | None) -> str:
    who = "another process" if found is None else found.describe()
    return f"{run} is being written by {who}; wait for it with --wait SECONDS, end it, or continue another run"


def _describe_waiting(run: Path, found: Writer | None, wait_s: float, *, is_taken: bool) -> str:
    who = "another process" if found is None else found.describe()
    if is_taken:
        return f"waiting at most {wait_s:g} s for {who}, which writes {run}"
    return f"{who} wrote {run} last and did not end cleanly; looking for {LEASE_S:g} s whether it still writes"


def _describe_self() -> Writer:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = socket.gethostname()
    started = time.strftime("%Y-%m-%d %H:%M:%S%z")
    return Writer(host=socket.gethostname(), process=os.getpid(), started=started, boot=boot, token=uuid.uuid4().hex)


def _lock(run: Path, handle: int) -> bool | None:
    """Whether this process has the lock now; None where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as cause:
        if cause.errno in NO_LOCKS:
            return None
        raise disk_error("lock", run / LOCK, cause) from cause
    return True


def _write(run: Path, writer: Writer) -> None:
    """Replace the file in one step; a crash of the machine may lose it, but also ends the writer."""
    path, temporary = run / WRITER, run / f".{WRITER}.{writer.token}.tmp"
    try:
        temporary.write_text(json.dumps(asdict(writer)), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as cause:
        raise disk_error("write", path, cause) from cause


def _sleep(seconds: float) -> None:
    """Wait; a separate function, so that a test can replace this clock alone."""
    time.sleep(seconds)


def _now() -> float:
    """Return seconds on a clock that also advances while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
