"""Reads the limit that an execution hit, and the files that it wrote, without trusting what it reports."""

from __future__ import annotations

import os
import stat

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.handles import Cell
from turnwise_sandbox.types import Limit


def find_limit(cell: Cell, stderr: bytes) -> Limit | None:
    """The limit that a failed program hit, from the kernel's counters or else from its last error; None if neither
    names one."""
    if cell.cgroup is not None:
        events = cell.cgroup.events()
        if events.num_oom_kills:
            return "memory"
        if events.num_pids_refused:
            return "pids"
    last = stderr.rstrip().rsplit(b"\n", 1)[-1][:300]
    if last.startswith(
        (b"MemoryError", b"numpy.core._exceptions._ArrayMemoryError", b"numpy._core._exceptions._ArrayMemoryError")
    ):
        return "memory"
    if b"[Errno 28]" in last or b"[Errno 27]" in last or b"No space left on device" in last:
        return "disk"
    if (
        last.startswith((b"BlockingIOError: [Errno 11]", b"RuntimeError: can't start new thread"))
        or b"fork: retry" in last
    ):
        return "pids"
    return None


def read_plain(fd: int, name: str, max_bytes: int) -> bytes:
    """The content of an open plain file. Raises SandboxError for another kind of file or one that is too large."""
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        raise SandboxError(f"{name} is not a regular file")
    if about.st_size > max_bytes:
        raise SandboxError(f"{name} has {about.st_size} bytes; at most {max_bytes} can be read")
    parts = []
    at = 0
    while at < about.st_size:
        part = os.pread(fd, about.st_size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)
