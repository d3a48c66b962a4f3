"""Reads the processes, descriptors, groups and folders that sandboxes have on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path


def read_processes() -> dict[int, tuple[int, str, str]]:
    """Pid to parent, state and command line of every process."""
    processes = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rsplit(") ", 1)[1].split()
                processes[int(name)] = (
                    int(fields[1]),
                    fields[0],
                    Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"),
                )
            except OSError:
                continue
    return processes


def descendants(root: int) -> set[int]:
    """Pids of the processes below `root`, without those that have ended and wait to be reaped."""
    processes = read_processes()
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    living: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            waiting.append(pid)
            if processes[pid][1] != "Z":
                living.add(pid)
    return living


def describe(pids: set[int]) -> list[str]:
    """Describe the processes, for a message."""
    processes = read_processes()
    return [f"{pid}: {processes[pid]}"[:200] for pid in sorted(pids) if pid in processes]


def by_role(root: int, *, without: Collection[int] = ()) -> dict[str, list[int]]:
    """Role to pids of the processes of the sandboxes in process `root`; "program" is what runs in cells. Sandboxes
    whose launcher is in `without` are left out."""
    processes = read_processes()

    def below(parents: list[int]) -> list[int]:
        return [pid for pid, (parent, state, _) in processes.items() if parent in parents and state != "Z"]

    launchers = [pid for pid in below([root]) if "turnwise_sandbox.zygote" in processes[pid][2] and pid not in without]
    zygotes = below(launchers)
    cells = below(zygotes)
    return {"launcher": launchers, "zygote": zygotes, "cell": cells, "program": below(cells)}


def wait_until(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until `holds()`; False if it does not within `timeout_s`."""
    ends = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


def open_descriptors() -> int:
    """Number of descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def group_folders(pid: int) -> list[str]:
    """Folders of the control groups that sandboxes of process `pid` made."""
    return (
        [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/turnwise-{pid}-*")]
        if os.path.isdir("/sys/fs/cgroup")
        else []
    )


def temp_folders(pid: int) -> list[str]:
    """Temporary folders that sandboxes of process `pid` made."""
    return [str(path) for path in Path("/tmp").glob(f"turnwise-sandbox-{pid}-*")]
