"""The limit of a browser's memory: a control group where this user may make one, else a watch that adds up its
processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from turnwise_sandbox.kernel.cgroups import CgroupPool
from turnwise_worlds.browser.processes import find_descendants

_PERIOD_S = 1.0
_NUM_PROCESSES = 2000
_PAGE_BYTES = 4096


class MemoryLimit:
    """At most `limit` bytes for a process and all that it starts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pool = CgroupPool.probe()
        self._group = self._pool.take(limit, _NUM_PROCESSES) if self._pool else None
        self._closed = threading.Event()

    @property
    def has_group(self) -> bool:
        """Whether the kernel holds the limit."""
        return self._group is not None

    def attach_fds(self) -> list[int]:
        """Return the descriptors by which the process joins the group, see `Cgroup.attach_fds`; none without one."""
        return self._group.attach_fds() if self._group else []

    def watch(self, pid: int, end: Callable[[str], None]) -> None:
        """Where there is no group: call `end` with the reason when the process and its descendants have more."""
        if self._group is None:
            threading.Thread(target=self._watch, args=(pid, end), name="turnwise-memory", daemon=True).start()

    def close(self) -> None:
        """Remove the group; its processes must have ended."""
        self._closed.set()
        if self._pool is not None:
            with contextlib.suppress(OSError):  # a process that is about to end; the next pool removes the group
                self._pool.close()
            self._pool = self._group = None

    def _watch(self, pid: int, end: Callable[[str], None]) -> None:
        while not self._closed.wait(_PERIOD_S):
            used = measure_memory(pid)
            if used > self._limit:
                end(f"it used {used:,} bytes of memory; {self._limit:,} are allowed")
                return


def measure_memory(pid: int) -> int:
    """Return the bytes of memory of a process and its descendants: proportional shares where the kernel shows them,
    else what is not shared."""
    return sum(map(_measure_one, find_descendants(pid)))


def _measure_one(pid: int) -> int:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(row.split()[1]) * 1024 for row in rows if row.startswith("Pss:"))
    except (OSError, ValueError):
        pass
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0
