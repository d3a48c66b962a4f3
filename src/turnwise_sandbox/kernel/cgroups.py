"""Pooled control groups: total memory and number of processes of everything a cell starts, and counts of what was
refused.

Version 2, or version 1 with its memory and pids hierarchies, whichever lets this user make groups; found out by making
one. Groups are kept and used again, since making one costs more than joining one. A name carries its owner's tag, so
what a killed owner left is swept by the next. A process joins by writing b"0" to the group's descriptors, which works
without any path; close them before it runs untrusted code.

It does not move its own process and does not enable controllers where that would take moving others.
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
"""Shared by all pools of this process: two of them must not make groups of one name."""


class CgroupEvents(NamedTuple):
    """What happened in a group since `mark()`."""

    num_oom_kills: int
    """Processes the kernel killed because the group was out of memory."""
    num_pids_refused: int
    """Forks and clones refused because the group had its number of processes and threads."""
    cpu_s: float | None
    """CPU seconds of all its processes; None where the kernel does not count them with memory and pids."""


class _Layout(NamedTuple):
    """Where one group's files lie: `parents` has one folder (version 2) or one per hierarchy (memory, pids)."""

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
            # A thread that moves itself alone needs no lock of the whole machine, which takes a grace period of the
            # kernel (up to 20 ms).
            joined = "tasks" if layout.version == 1 else "cgroup.procs"
            self._attach = [os.open(f"{folder}/{joined}", os.O_WRONLY | os.O_CLOEXEC) for folder in self._folders]
            self._base = self._read_counters()
        except OSError:
            self.remove()
            raise

    def attach_fds(self) -> list[int]:
        """Descriptors into each of which a process writes b"0" to join. They belong to the group: duplicate or inherit,
        do not close."""
        return list(self._attach)

    def set_limits(self, memory_bytes: int, num_pids: int) -> None:
        """Memory (swap is off or counted with it) and number of processes and threads, all together. Raises OSError
        (EBUSY: in use)."""
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
                _write(
                    f"{memory}/memory.memsw.limit_in_bytes", -1
                )  # never below the other limit, whichever way that moves
            _write(f"{memory}/memory.limit_in_bytes", memory_bytes)
            with contextlib.suppress(FileNotFoundError):
                _write(f"{memory}/memory.memsw.limit_in_bytes", memory_bytes)
        _write(f"{pids}/pids.max", num_pids)
        self._limits = (memory_bytes, num_pids)

    def mark(self) -> None:
        """Count events from now on."""
        self._base = self._read_counters()

    def events(self) -> CgroupEvents:
        """What happened since `mark()` (or since the group was taken)."""
        now, base = self._read_counters(), self._base
        cpu_s = now[2] - base[2] if self._layout.version == 2 else None
        return CgroupEvents(int(now[0] - base[0]), int(now[1] - base[1]), cpu_s)

    def memory_bytes(self) -> int:
        """Memory charged to the group now."""
        name = "memory.current" if self._layout.version == 2 else "memory.usage_in_bytes"
        with open(f"{self._folders[0]}/{name}", "rb") as file:
            return int(file.read())

    def processes(self) -> list[int]:
        """Pids in the group, as this process sees them; 0 stands for one it cannot see."""
        return _members(self._folders[-1])

    def kill_all(self) -> bool:
        """Kill every process in the group and wait until none is left. False when some is after two seconds (stuck in
        the kernel)."""
        if not self.processes():
            return True
        if os.path.exists(f"{self._folders[0]}/cgroup.kill"):
            _write(f"{self._folders[0]}/cgroup.kill", 1)
        else:
            self._limits = None
            _write(f"{self._folders[-1]}/pids.max", 0)  # nothing forks away while it is being killed
        return _kill_members(self._folders[-1])

    def give_back(self) -> None:
        """Kill what is left and keep the group for the next `take`; one that cannot be emptied is not used again."""
        if self.kill_all():
            self._pool.free.append(self)

    def remove(self) -> None:
        """Close the descriptors, kill what is left and remove the group's folders. Raises OSError (EBUSY) when a
        process stays in it."""
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
        """One value of a file of `key value` rows, through a descriptor that is opened once; 0 where the kernel does
        not count it."""
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
    """Groups of this process. Not for use from several threads at once."""

    def __init__(self, layout: _Layout) -> None:
        """Use `probe()`."""
        self._layout = layout
        self.free: list[Cgroup] = []
        """Groups that wait to be used again."""
        self._all: list[Cgroup] = []

    @property
    def version(self) -> int:
        """1 or 2: which kind of control groups this is."""
        return self._layout.version

    @classmethod
    def probe(cls) -> CgroupPool | None:
        """A pool, after sweeping what dead owners left; None where this user can make no group with both limits that a
        child can join."""
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
        """An empty group with these limits, its counters marked. Raises OSError when none can be made."""
        if self.free:
            cgroup = self.free.pop()
        else:
            cgroup = Cgroup(self, self._layout, f"turnwise-{own_tag()}-{next(_numbers)}")
            self._all.append(cgroup)
        cgroup.set_limits(memory_bytes, num_pids)
        cgroup.mark()
        return cgroup

    def close(self) -> None:
        """Kill what is left in all groups and remove them. Raises OSError naming one that cannot be removed."""
        for cgroup in self._all:
            cgroup.kill_all()
            cgroup.remove()
        self._all, self.free = [], []


def sweep_stale(parents: tuple[str, ...]) -> int:
    """Remove groups below `parents` whose owner is dead, killing what is left in them; returns how many folders
    went."""
    num_removed = 0
    for parent in parents:
        for name in _names(parent):
            match = _NAME.fullmatch(name)
            if match is None or not is_dead(match[1]):
                continue
            folder = f"{parent}/{name}"
            with contextlib.suppress(OSError):  # another process sweeps too, or a process there cannot be killed yet
                _kill_members(folder)
                os.rmdir(folder)
                num_removed += 1
    return num_removed


def _members(folder: str) -> list[int]:
    with open(f"{folder}/cgroup.procs", "rb") as file:
        return [int(line) for line in file]


def _kill_members(folder: str) -> bool:
    """Kill until none is left; False when some is after two seconds. Pid 0 is a process that cannot be seen from
    here."""
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
    """A cell that nobody waits for any more may be on its way in, in one hierarchy and not yet in the other, or on its
    way out."""
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
    """Whether a process of ours can be put into the group."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        try:
            for fd in cgroup.attach_fds():
                os.write(fd, str(child.pid).encode())
            return child.pid in cgroup.processes()
        finally:
            child.kill()


def _candidates() -> Iterator[_Layout]:
    """Places where groups might be made: the process's own group and those above it, in version 2, then in version
    1."""
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
        with contextlib.suppress(
            OSError
        ):  # processes in it, or not ours: perhaps the groups above have the controllers on
            _write(f"{folder}/cgroup.subtree_control", "+memory +pids")
        while folder.startswith(top) and folder != "/":
            if set(_CONTROLLERS) <= set(_words(f"{folder}/cgroup.subtree_control")):
                yield _Layout(2, (folder,))
            folder = os.path.dirname(folder)
    if all(controller in folders for controller in _CONTROLLERS):
        yield _Layout(1, tuple(folders[controller] for controller in _CONTROLLERS))


def _own_folder(path: str, root: str, point: str) -> str:
    """The folder of group `path` when the mount at `point` shows the hierarchy from group `root` on."""
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
