"""The processes below another one: found, and waited for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

_PAUSE_S = 0.01


def find_descendants(pid: int) -> list[int]:
    """Return a process and all that descend from it, of those that exist now."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def wait_for_end(pids: Iterable[int], seconds: float) -> list[int]:
    """Wait until processes have ended, for at most some seconds; returns those that still run. A process that has ended
    and that its parent has not asked about does not run."""
    deadline = time.monotonic() + seconds
    while (running := [pid for pid in pids if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return running


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
