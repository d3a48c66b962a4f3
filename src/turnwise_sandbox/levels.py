"""Which isolation this machine can give, and whether it holds: a level is chosen by trying, then canaries run inside
it.

full      namespaces, a read-only root, a scratch file system, seccomp, Landlock (as root or through user namespaces)
uid       a user id per cell, Landlock, seccomp: containers whose root may change its user id but not make namespaces
process   Landlock and seccomp in the caller's own user id: restricted containers
seccomp   seccomp alone: files that anyone may read stay readable
none      nothing; refused unless asked for by name
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise_sandbox.canaries import PROPERTIES, run_canaries
from turnwise_sandbox.cell import CellKind
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.handles import Cell
from turnwise_sandbox.kernel import files
from turnwise_sandbox.kernel.cgroups import CgroupPool
from turnwise_sandbox.kernel.owner import is_dead, own_tag
from turnwise_sandbox.kernel.probe import Capabilities, probe
from turnwise_sandbox.requests import CELL_PIDS, CellKey
from turnwise_sandbox.types import Execution, Limits, Program

LEVELS = ("full", "uid", "process", "seccomp", "none")
"""From strongest to weakest."""

_cell_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One thing a level promises about code that runs in it."""

    name: str
    enforced_by: str | None
    """The mechanism; None where the level has none."""
    verified: bool
    """A canary tried to break it, from inside, and could not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A level as it was seen to hold on this machine."""

    name: str
    properties: Mapping[str, Property]
    reasons: Mapping[str, str]
    """Why stronger levels are not to be had: level to what failed."""


def check_required(level: Level, required: Iterable[str]) -> None:
    """Raises SandboxError when a required property is unknown, not enforced, or was seen to fail."""
    for name in required:
        found = level.properties.get(name)
        if found is None:
            raise SandboxError(f"there is no sandbox property {name!r}; known are {', '.join(level.properties)}")
        if found.enforced_by is None or not found.verified:
            why = "; ".join(f"{stronger}: {reason}" for stronger, reason in level.reasons.items())
            raise SandboxError(
                f"property {name!r} is required, but level {level.name!r} does not hold it"
                + (f" (stronger levels: {why})" if why else "")
                + "; run `turnwise sandbox doctor` for the whole table"
            )


def find_host(wanted: str, *, allow_unsafe: bool) -> Host:
    """The host at the wanted level, or at the best one for "auto". Raises SandboxError rather than step down."""
    found = probe()
    reasons = dict(found.reasons)
    if not is_shared(sys.executable):
        reasons.setdefault("uid", f"{os.path.realpath(sys.executable)} lies in a folder that other users may not enter")
    best = next(level for level in LEVELS if level not in reasons)
    level = best if wanted == "auto" else wanted
    if level not in LEVELS:
        raise SandboxError(f"there is no sandbox level {level!r}; known are {', '.join(LEVELS)}, and auto")
    if LEVELS.index(level) < LEVELS.index(best):
        raise SandboxError(
            f"level {level!r} cannot be had here ({reasons.get(level, 'unknown reason')}); the best is {best!r}"
        )
    if level == "none" and not allow_unsafe:
        raise SandboxError(
            "nothing on this machine can isolate code (" + "; ".join(f"{k}: {v}" for k, v in reasons.items()) + "); "
            "use a remote backend, or allow_unsafe=True if the code may do whatever your user may"
        )
    if level in reasons:
        raise SandboxError(f"level {level!r} cannot be had here: {reasons[level]}")
    if level == "none" and not found.has_children_file:
        raise SandboxError(
            "/proc does not list a process's children, so what a program starts could not be ended; mount /proc"
        )
    return Host(level, found, reasons)


def is_shared(executable: str) -> bool:
    """Whether every user may run this interpreter: another user id could otherwise import nothing."""
    return all(folder.stat().st_mode & 0o001 for folder in Path(os.path.realpath(executable)).parents)


class Host:
    """What this machine lends to cells: cgroups, user ids, folders. Made once per sandbox; `close` gives all of it
    back."""

    def __init__(self, level: str, capabilities: Capabilities, reasons: Mapping[str, str]) -> None:
        """`reasons` says why other levels cannot be had."""
        self.reasons = reasons
        self.level = level
        self.capabilities = capabilities
        self.user_namespace = level == "full" and not capabilities.direct_namespaces
        self.landlock_abi = capabilities.landlock_abi if level in ("full", "uid", "process") else 0
        self._cgroups = CgroupPool.probe() if level != "none" else None
        self._folder: Path | None = None
        sweep_stale_folders()
        if level != "full":
            self._folder = Path(tempfile.mkdtemp(prefix=f"turnwise-sandbox-{own_tag()}-"))
            self._folder.chmod(0o711)

    @property
    def has_cgroups(self) -> bool:
        """Memory and processes are counted for a whole cell."""
        return self._cgroups is not None

    def zygote_config(self, profile: str) -> dict[str, Any]:
        """What a zygote is started with."""
        return {
            "profile": profile,
            "level": self.level,
            "user_namespace": self.user_namespace,
            "landlock_abi": self.landlock_abi,
            "seccomp": self.level != "none",
            "extra_paths": [],
        }

    def build_cell(self, key: CellKey, kind: CellKind) -> Cell:
        """A cell's descriptors, cgroup and folder; the process comes later."""
        index = next(_cell_numbers)
        try:
            cgroup = (
                self._cgroups.take(key.memory_bytes, key.num_pids + CELL_PIDS) if self._cgroups is not None else None
            )
        except OSError as error:
            raise SandboxError(f"no control group with the program's limits could be made: {error}") from error
        scratch = None
        if self._folder is not None:
            place = self._folder / f"cell{index}"
            place.mkdir(mode=0o700)
            for name in ("work", "tmp"):
                (place / name).mkdir(mode=0o700)
            if self.level == "uid":
                for path in (place, place / "work", place / "tmp"):
                    os.chown(path, self.capabilities.cell_uid(index), self.capabilities.cell_uid(index))
            scratch = str(place)
        return Cell(key, cgroup, scratch, index, kind)

    def uid_of(self, cell: Cell) -> int | None:
        """The user id the cell runs under where it can be chosen: its own, so that limits and signals stop at it. Else
        None."""
        chosen = self.level == "uid" or (self.level == "full" and not self.user_namespace)
        return self.capabilities.cell_uid(cell.index) if chosen else None

    def free_cell(self, cell: Cell) -> None:
        """Give back what `build_cell` took. The cell is closed."""
        if cell.cgroup is not None:
            cell.cgroup.give_back()
            cell.cgroup = None
        if cell.scratch is not None:
            _remove(cell.scratch)

    def close(self) -> None:
        """Remove cgroups and folders."""
        if self._cgroups is not None:
            self._cgroups.close()
            self._cgroups = None
        if self._folder is not None:
            _remove(self._folder)
            self._folder = None


def sweep_stale_folders() -> None:
    """Remove folders whose owner ended without closing its sandbox."""
    for folder in Path(tempfile.gettempdir()).glob("turnwise-sandbox-*-*-*-*"):
        if is_dead("-".join(folder.name.split("-")[2:5])):
            _remove(folder)


def _remove(folder: str | Path) -> None:
    """Remove a folder and what a program made of it: also what has no permissions left. Others' files stay."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            files.remove_tree(fd)
        finally:
            os.close(fd)
        os.rmdir(folder)


RunCanary = Callable[[Program, Limits], Awaitable[Execution]]


async def verify_level(host: Host, run: RunCanary) -> Level:
    """Try to break every property from inside. Raises SandboxError when one that the level enforces does not hold."""
    promised = enforced_properties(host)
    broken = await run_canaries(run, host)
    properties = {
        name: Property(name=name, enforced_by=promised.get(name), verified=name in promised and name not in broken)
        for name in PROPERTIES
    }
    failed = [f"{name} ({broken[name]})" for name in PROPERTIES if name in promised and name in broken]
    if failed and host.level != "none":
        raise SandboxError(
            f"level {host.level!r} was seen to fail: {', '.join(failed)}; nothing was run. Please report the kernel "
            "version"
        )
    return Level(name=host.level, properties=properties, reasons=dict(host.reasons))


def enforced_properties(host: Host) -> dict[str, str]:
    """Property to mechanism, for what the level promises here."""
    level, abi = host.level, host.landlock_abi
    if level == "none":
        return {"cpu": "RLIMIT_CPU and the supervisor's timer", "mem_proc": "RLIMIT_DATA"}
    found = {
        "net": "seccomp: no socket but AF_UNIX",
        "vsock": "seccomp",
        "ptrace": "seccomp",
        "ipc": "seccomp: no System V IPC, message queues or keyrings",
        "privileges": "seccomp, no_new_privs, no capabilities",
        "mem_proc": "RLIMIT_DATA",
        "cpu": "RLIMIT_CPU and the cell's timer",
    }
    if host.has_cgroups:
        found["mem_total"] = "cgroup"
        found["pids"] = "cgroup"
    if level == "full":
        found |= {
            "fs_read": "a root of its own",
            "fs_write": "read-only root",
            "fs_meta": "read-only root",
            "disk_total": "tmpfs of limited size",
            "kill_tree": "pid namespace",
            "signals": "pid namespace",
            "cross_exec": "namespaces per cell, wiped between programs",
            "abstract_unix": "network namespace",
            "unix_path": "a root of its own",
        }
        if not (
            host.user_namespace and os.geteuid() == 0
        ):  # which never binds user id 0, mapped into a namespace or not
            found.setdefault("pids", "RLIMIT_NPROC of a user id or user namespace of its own")
    if level in ("uid", "process") and abi:
        found |= {"fs_read": "Landlock", "fs_write": "Landlock", "cross_exec": "Landlock, wiped between programs"}
        if abi >= 6:
            found |= {"abstract_unix": "Landlock scope", "signals": "Landlock scope"}
    if level == "uid":
        found |= dict.fromkeys(("kill_tree", "signals", "fs_meta"), "a user id of its own")
        found.setdefault("pids", "RLIMIT_NPROC of a user id of its own")
    if level in ("process", "seccomp"):
        found["kill_tree"] = "child subreaper"
    return found
