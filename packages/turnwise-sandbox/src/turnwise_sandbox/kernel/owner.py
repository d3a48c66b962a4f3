"""Tags in the names of groups and folders that can outlive their owner, which show whether the owner is dead."""

from __future__ import annotations

import os
import re

TAG = re.compile(r"(\d+)-(\d+)-(\d+)")
"""Pid, start time and pid namespace."""


def own_tag() -> str:
    """The tag of this process."""
    return f"{os.getpid()}-{_start_time(os.getpid())}-{_pid_namespace()}"


def is_dead(tag: str) -> bool:
    """Whether the process with that tag has certainly ended. False for an owner in another pid namespace, which this
    process cannot see, for text that is no tag, and without /proc."""
    match = TAG.fullmatch(tag)
    return match is not None and match[3] == _pid_namespace() != "0" and _start_time(int(match[1])) != match[2]


def _pid_namespace() -> str:
    """The number of this process's pid namespace; "0" without /proc."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"


def _start_time(pid: int) -> str:
    """When a living process started, in ticks since boot; "0" if there is none. Distinguishes processes that had the
    same pid."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return "0"
    return "0" if fields[0] in (b"Z", b"X") else fields[19].decode()  # a process that ended and was not reaped
