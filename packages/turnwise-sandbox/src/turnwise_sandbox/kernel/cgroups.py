"""Pooled control groups: they limit the memory and the number of processes of a whole cell, and count refusals.

Uses version 2, or version 1 with its memory and pids hierarchies, whichever lets this user make groups, which is tested
by making one. Groups are used again, since making one costs more than joining one. A group's name holds its owner's
tag, so that the next owner removes the groups of one that was killed. A process joins by writing b"0" to the group's
descriptors, which needs no path; close them before the process runs untrusted code.

The pool never moves its own process to another group, and enables controllers only where no process must be moved.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

from turnwise_sandbox.kernel.owner import TAG, is_dead, own_tag

_NAME = re.compile(rf"turnwise-({TAG.pattern})-\d+")
_KILL_DEADLINE_S = 2.0
_CONTROLLERS = ("memory", "pids")
_numbers = itertools.count()
"""Shared by all pools of this process, so that their groups have different names."""


class CgroupEvents(NamedTuple):
    """Events in a group since `mark()`."""

    num_oom_kills: int
    """Processes the kernel killed because the group was out of memory."""
    num_pids_refused: int
    """Forks and clones that were refused because the group was at its limit of processes and threads."""
    cpu_s: float | None
    """Processor seconds of all its processes; None in version 1, which counts them in another hierarchy."""


class _Layout(NamedTuple):
    """Where groups are made: `parents` is one folder (version 2) or one per hierarchy (memory, pids)."""

    version: int
    parents: tuple[str, ...]


class Cgroup:
    """One group, made by `CgroupPool.take`. Its descriptors stay open until the pool is closed."""

    def __init__(self, pool: CgroupPool, layout: _Layout, name: str) -> None:
        self._pool = pool
        self._layout = layout
        self._folders = [f"{parent}/{name}" for parent in layout.parents]
        self._limits: tuple[int, int] | None = None
        self._open: dict[str, int] = {}
        try:
            for folder in self._folders:
                os.mkdir(folder)
            # A thread that moves only itself needs no machine-wide lock, for which the kernel may take 20 ms.
            joined = "tasks" if layout.version == 1 else "cgroup.procs"
            self._attach = [os.open(f"{folder}/{joined}", os.O_WRONLY | os.O_CLOEXEC) for folder in self._folders]
            self._base = self._read_counters()
        except OSError:
            self.remove()
            raise

    def attach_fds(self) -> list[int]:
        """Descriptors to which a process writes b"0", one after the other, to join. The group owns them: a process may
        inherit or duplicate them, but the caller must not close them."""
        return list(self._attach)

    def set_limits(self, memory_bytes: int, num_pids: int) -> None:
        """Limit the memory, including swap, and the number of processes and threads of the group. Raises OSError (EBUSY
        if more memory is in use)."""
        if self._limits == (memory_bytes, num_pids):
            return
        self._limits = None
        memory, pids = self._folders[0], self._folders[-1]
        if self._layout.version == 2:
            _write(f"{memory}/memory.max", memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # no swap accounting
                _write(f"{memory}/memory.swap.max", 0)
        else:
            with contextlib.suppress(FileNotFoundError):
                # This limit must never be below the next one, in whichever direction that changes.
                _write(f"{memory}/memory.memsw.limit_in_bytes", -1)
            _write(f"{memory}/memory.limit_in_bytes", memory_bytes)
            with contextlib.suppress(FileNotFoundError):
                _write(f"{memory}/memory.memsw.limit_in_bytes", memory_bytes)
        _write(f"{pids}/pids.max", num_pids)
        self._limits = (memory_bytes, num_pids)

    def mark(self) -> None:
        """Let `events` count from here."""
        self._base = self._read_counters()

    def events(self) -> CgroupEvents:
        """Events since `mark()`, or since the group was taken."""
        now, base = self._read_counters(), self._base
        cpu_s = now[2] - base[2] if self._layout.version == 2 else None
        return CgroupEvents(int(now[0] - base[0]), int(now[1] - base[1]), cpu_s)

    def memory_bytes(self) -> int:
        """Memory that is charged to the group."""
        name = "memory.current" if self._layout.version == 2 else "memory.usage_in_bytes"
        with open(f"{self._folders[0]}/{name}", "rb") as file:
            return int(file.read())

    def processes(self) -> list[int]:
        """Pids of the group's processes, in this process's pid namespace; 0 for each that it cannot see."""
        return _members(self._folders[-1])

    def kill_all(self) -> bool:
        """Kill every process in the group and wait for their end. False if one still lives after two seconds."""
        if not self.processes():
            return True
        if os.path.exists(f"{self._folders[0]}/cgroup.kill"):
            _write(f"{self._folders[0]}/cgroup.kill", 1)
        else:
            self._limits = None
            _write(f"{self._folders[-1]}/pids.max", 0)  # prevents forks while the processes are killed
        return _kill_members(self._folders[-1])

    def give_back(self) -> None:
        """Kill the group's processes and return it to the pool, unless one of them cannot be killed."""
        if self.kill_all():
            self._pool.free.append(self)

    def remove(self) -> None:
        """Close the descriptors, kill the group's processes and remove its folders. Raises OSError (EBUSY) if a process
        remains."""
        for fd in (*getattr(self, "_attach", ()), *self._open.values()):
            os.close(fd)
        self._attach = []
        self._open = {}
        for folder in self._folders:
            _remove_folder(folder)

    def _read_counters(self) -> tuple[float, float, float]:
        memory, pids = self._folders[0], self._folders[-1]
        if self._layout.version == 1:
            return (
                self._counter(f"{memory}/memory.oom_control", b"oom_kill"),
                self._counter(f"{pids}/pids.events", b"max"),
                0.0,
            )
        usage_us = self._counter(f"{memory}/cpu.stat", b"usage_usec")
        return (
            self._counter(f"{memory}/memory.events", b"oom_kill"),
            self._counter(f"{pids}/pids.events", b"max"),
            usage_us / 1e6,
        )

    def _counter(self, path: str, key: bytes) -> int:
        """One value in a file of `key value` rows, through a descriptor that stays open; 0 if the kernel has no such
        count."""
        if path not in self._open:
            try:
                self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return 0
        for row in os.pread(self._open[path], 4096, 0).splitlines():
            name, _, value = row.partition(b" ")
            if name == key:
                return int(value)
        return 0


class CgroupPool:
    """The groups of this process. Not thread-safe."""

    def __init__(self, layout: _Layout) -> None:
        """Made by `probe()`."""
        self._layout = layout
        self.free: list[Cgroup] = []
        """Empty groups that can be used again."""
        self._all: list[Cgroup] = []

    @property
    def version(self) -> int:
        """The version of control groups, 1 or 2."""
        return self._layout.version

    @classmethod
    def probe(cls) -> CgroupPool | None:
        """A pool, after removing the groups of dead owners. None if this user cannot make a group with both limits that
        a child process can join."""
        for layout in _candidates():
            sweep_stale(layout.parents)
            pool = cls(layout)
            try:
                cgroup = pool.take(64 << 20, 8)
                if _child_joins(cgroup):
                    cgroup.give_back()
                    return pool
            except OSError:
                pass
            with contextlib.suppress(OSError):
                pool.close()
        return None

    def take(self, memory_bytes: int, num_pids: int) -> Cgroup:
        """An empty group with these limits, which counts events from here. Raises OSError if none can be made."""
        if self.free:
            cgroup = self.free.pop()
        else:
            cgroup = Cgroup(self, self._layout, f"turnwise-{own_tag()}-{next(_numbers)}")
            self._all.append(cgroup)
        cgroup.set_limits(memory_bytes, num_pids)
        cgroup.mark()
        return cgroup

    def close(self) -> None:
        """Kill all processes in the groups and remove them. Raises OSError naming a group that cannot be removed."""
        for cgroup in self._all:
            cgroup.kill_all()
            cgroup.remove()
        self._all, self.free = [], []


def sweep_stale(parents: tuple[str, ...]) -> int:
    """Remove groups below `parents` whose owner is dead, with their processes; returns the number of folders
    removed."""
    num_removed = 0
    for parent in parents:
        for name in _names(parent):
            match = _NAME.fullmatch(name)
            if match is None or not is_dead(match[1]):
                continue
            folder = f"{parent}/{name}"
            with contextlib.suppress(
                OSError
            ):  # another process may sweep too, and some processes cannot be killed at once
                _kill_members(folder)
                os.rmdir(folder)
                num_removed += 1
    return num_removed


def _members(folder: str) -> list[int]:
    with open(f"{folder}/cgroup.procs", "rb") as file:
        return [int(line) for line in file]


def _kill_members(folder: str) -> bool:
    """Kill all processes in the group; False if one still lives after two seconds. Pid 0 is a process that this pid
    namespace does not show."""
    deadline = time.monotonic() + _KILL_DEADLINE_S
    while pids := _members(folder):
        for pid in pids:
            if pid > 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _remove_folder(folder: str) -> None:
    """Remove a group's folder, if necessary again and again for two seconds: a cell may still be entering the group, in
    one hierarchy and not yet in the other, or leaving it. Raises OSError."""
    deadline = time.monotonic() + _KILL_DEADLINE_S
    while True:
        try:
            os.rmdir(folder)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        _kill_members(folder)
        time.sleep(0.001)


def _names(parent: str) -> list[str]:
    try:
        return os.listdir(parent)
    except OSError:
        return []


def _child_joins(cgroup: Cgroup) -> bool:
    """Whether a child process can be moved into the group."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        try:
            for fd in cgroup.attach_fds():
                os.write(fd, str(child.pid).encode())
            return child.pid in cgroup.processes()
        finally:
            child.kill()


def _candidates() -> Iterator[_Layout]:
    """Places where groups might be made: in version 2 the process's own group and those above it, then in version 1."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = {controllers: path for _, controllers, path in (line.rstrip("\n").split(":", 2) for line in file)}
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mounts = [line.split() for line in file]
    except OSError:
        return
    folders: dict[str, str] = {}
    top = ""
    for row in mounts:
        kind, options = row[row.index("-") + 1], row[-1].split(",")
        root, point = row[3], row[4]
        if kind == "cgroup2" and "" in own:
            folders[""] = _own_folder(own[""], root, point)
            top = point
        elif kind == "cgroup":
            for controllers, path in own.items():
                for controller in _CONTROLLERS:
                    if controller in options and controller in controllers.split(","):
                        folders[controller] = _own_folder(path, root, point)
    if "" in folders:
        folder = folders[""]
        # Fails if the group holds processes or belongs to another user; a group above may have the controllers enabled.
        with contextlib.suppress(OSError):
            _write(f"{folder}/cgroup.subtree_control", "+memory +pids")
        while folder.startswith(top) and folder != "/":
            if set(_CONTROLLERS) <= set(_words(f"{folder}/cgroup.subtree_control")):
                yield _Layout(2, (folder,))
            folder = os.path.dirname(folder)
    if all(controller in folders for controller in _CONTROLLERS):
        yield _Layout(1, tuple(folders[controller] for controller in _CONTROLLERS))


def _own_folder(path: str, root: str, point: str) -> str:
    """The folder of group `path`, if the mount at `point` shows the hierarchy from group `root` on."""
    inside = os.path.relpath(path, root)
    return point if inside == "." or inside.startswith("..") else f"{point}/{inside}"


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except OSError:
        return []


def _write(path: str, value: int | str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
