"""What the processes, descriptors, mounts and groups of this machine look like from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def read_processes() -> dict[int, tuple[int, str, str]]:
    """Pid to parent, state and command line of every process there is."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rsplit(") ", 1)[1].split()
                found[int(name)] = (
                    int(fields[1]),
                    fields[0],
                    Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"),
                )
            except OSError:
                continue
    return found


def descendants(root: int) -> set[int]:
    """Living processes below `root`; ended ones that wait to be reaped are left out."""
    processes = read_processes()
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            waiting.append(pid)
            if processes[pid][1] != "Z":
                found.add(pid)
    return found


def describe(pids: set[int]) -> list[str]:
    """For a message: what these processes are."""
    processes = read_processes()
    return [f"{pid}: {processes[pid]}"[:200] for pid in sorted(pids) if pid in processes]


def by_role(root: int) -> dict[str, list[int]]:
    """Processes of the sandboxes that `root` runs: launchers, zygotes and cells (with what runs in them)."""
    processes = read_processes()

    def below(parents: list[int]) -> list[int]:
        return [pid for pid, (parent, state, _) in processes.items() if parent in parents and state != "Z"]

    launchers = [pid for pid in below([root]) if "turnwise_sandbox.zygote" in processes[pid][2]]
    zygotes = below(launchers)
    cells = below(zygotes)
    return {"launcher": launchers, "zygote": zygotes, "cell": cells, "program": below(cells)}


def wait_until(holds: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it held before the time was up."""
    ends = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def group_folders(pid: int) -> list[str]:
    """Control groups that a sandbox of process `pid` made."""
    return (
        [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/turnwise-{pid}-*")]
        if os.path.isdir("/sys/fs/cgroup")
        else []
    )


def temp_folders(pid: int) -> list[str]:
    return [str(path) for path in Path("/tmp").glob(f"turnwise-sandbox-{pid}-*")]
