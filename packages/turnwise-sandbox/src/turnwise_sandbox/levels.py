"""Chooses the level of isolation by trying what this machine allows, then tests the level with canaries inside it.

full      namespaces, a read-only root, a scratch file system, seccomp, Landlock (as root or through user namespaces)
uid       a user id per cell, Landlock, seccomp: containers whose root may change its user id but not make namespaces
process   Landlock and seccomp under the caller's own user id: restricted containers
seccomp   seccomp alone: files that every user may read stay readable
none      no isolation; refused unless named
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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
from turnwise_sandbox.types import Execution, Limits, Program, TreeMethod

LEVELS = ("full", "uid", "process", "seccomp", "none")
"""All levels, from strongest to weakest."""

_cell_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A guarantee of a level about code that runs in it."""

    name: str
    enforced_by: str | None
    """The mechanism that enforces it; None if the level has none."""
    verified: bool
    """Whether a canary inside the level tried to break the property and failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A level, with its properties as tested on this machine."""

    name: str
    properties: Mapping[str, Property]
    reasons: Mapping[str, str]
    """Why each stronger level is unavailable: level to what failed."""
    trees: TreeMethod
    """How programs get their trees."""
    no_overlay: str | None
    """Why trees are copied; None if they are merged by overlayfs."""


def check_required(level: Level, required: Iterable[str]) -> None:
    """Raise SandboxError if a required property is unknown, not enforced, or not verified."""
    for name in required:
        item = level.properties.get(name)
        if item is None:
            raise SandboxError(f"unknown sandbox property {name!r}; it must be one of {', '.join(level.properties)}")
        if item.enforced_by is None or not item.verified:
            why = "; ".join(f"{stronger}: {reason}" for stronger, reason in level.reasons.items())
            raise SandboxError(
                f"property {name!r} is required, but level {level.name!r} does not have it"
                + (f" (stronger levels: {why})" if why else "")
                + "; run `turnwise sandbox doctor` for the full table"
            )


def find_host(wanted: str, *, allow_unsafe: bool) -> Host:
    """The host at the level that is wanted; "auto" takes the best. Raises SandboxError if the level is unavailable."""
    capabilities = probe()
    reasons = dict(capabilities.reasons)
    if not is_shared(sys.executable):
        reasons.setdefault("uid", f"{os.path.realpath(sys.executable)} lies in a folder that other users may not enter")
    best = next(level for level in LEVELS if level not in reasons)
    level = best if wanted == "auto" else wanted
    if level not in LEVELS:
        raise SandboxError(f"unknown sandbox level {level!r}; it must be auto, {', '.join(LEVELS)}")
    if LEVELS.index(level) < LEVELS.index(best):
        raise SandboxError(
            f"level {level!r} is unavailable ({reasons.get(level, 'unknown reason')}); the best is {best!r}"
        )
    if level == "none" and not allow_unsafe:
        raise SandboxError(
            "nothing on this machine can isolate code ("
            + "; ".join(f"{k}: {v}" for k, v in reasons.items())
            + "); use a remote backend, or allow_unsafe=True to let the "
            "code do whatever your user may do"
        )
    if level in reasons:
        raise SandboxError(f"level {level!r} is unavailable: {reasons[level]}")
    if level == "none" and not capabilities.has_children_file:
        raise SandboxError(
            "/proc does not list a process's children, so processes started by a program could not be ended; mount "
            "/proc"
        )
    return Host(level, capabilities, reasons)


def is_shared(executable: str) -> bool:
    """Whether every user may run this interpreter. If not, a cell under another user id could import nothing."""
    return all(folder.stat().st_mode & 0o001 for folder in Path(os.path.realpath(executable)).parents)


class Host:
    """The machine's resources for cells: cgroups, user ids and folders. Made once per sandbox; `close` removes them."""

    def __init__(self, level: str, capabilities: Capabilities, reasons: Mapping[str, str]) -> None:
        """`reasons` says why other levels are unavailable."""
        self.reasons = reasons
        self.level = level
        self.capabilities = capabilities
        self.user_namespace = level == "full" and not capabilities.direct_namespaces
        self.landlock_abi = capabilities.landlock_abi if level in ("full", "uid", "process") else 0
        self._cgroups = CgroupPool.probe() if level != "none" else None
        self.no_overlay = None
        if level != "full":
            self.no_overlay = f"level {level!r} has no mounts of its own"
        elif not capabilities.overlay:
            self.no_overlay = capabilities.failures.get("overlay", "not tried")
        sweep_stale_folders()
        self._folder: Path | None = Path(tempfile.mkdtemp(prefix=f"turnwise-sandbox-{own_tag()}-"))
        self._folder.chmod(0o711)
        self.store = self._folder / "layers"
        """The folder for the layers of trees."""
        self.store.mkdir(mode=0o700)

    @property
    def trees(self) -> TreeMethod:
        """How programs get their trees."""
        return "overlay" if self.no_overlay is None else "copy"

    @property
    def has_cgroups(self) -> bool:
        """Whether memory and processes are counted for a whole cell."""
        return self._cgroups is not None

    def zygote_config(self, profile: str, visible: Sequence[str] = ()) -> dict[str, Any]:
        """The configuration that a zygote is started with. `visible` are folders that its cells show."""
        return {
            "profile": profile,
            "level": self.level,
            "user_namespace": self.user_namespace,
            "landlock_abi": self.landlock_abi,
            "seccomp": self.level != "none",
            "extra_paths": list(visible),
            "store": str(self.store) if self.trees == "overlay" else None,
        }

    def build_cell(self, key: CellKey, kind: CellKind) -> Cell:
        """Make a cell's descriptors, cgroup and folder, without its process. Raises SandboxError."""
        index = next(_cell_numbers)
        try:
            cgroup = (
                self._cgroups.take(key.memory_bytes, key.num_pids + CELL_PIDS) if self._cgroups is not None else None
            )
        except OSError as error:
            raise SandboxError(f"could not create a control group with the program's limits: {error}") from error
        scratch = None
        if self.level != "full":
            assert self._folder is not None
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
        """The user id of the cell alone, so that its limits and signals affect no other cell; None if the level cannot
        change the user id."""
        has_own = self.level == "uid" or (self.level == "full" and not self.user_namespace)
        return self.capabilities.cell_uid(cell.index) if has_own else None

    def free_cell(self, cell: Cell) -> None:
        """Return the cgroup and remove the folder of a closed cell."""
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
    """Remove the folders of processes that ended without closing their sandbox."""
    for folder in Path(tempfile.gettempdir()).glob("turnwise-sandbox-*-*-*-*"):
        if is_dead("-".join(folder.name.split("-")[2:5])):
            _remove(folder)


def _remove(folder: str | Path) -> None:
    """Remove a folder with everything in it, also what has no permissions. Files of other users stay."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            files.remove_tree(fd)
        finally:
            os.close(fd)
        os.rmdir(folder)


RunCanary = Callable[[Program, Limits], Awaitable[Execution]]


async def verify_level(host: Host, run: RunCanary) -> Level:
    """Try to break every property from inside. Raises SandboxError if one that the level enforces fails."""
    promised = enforced_properties(host)
    broken = await run_canaries(run, host)
    properties = {
        name: Property(name=name, enforced_by=promised.get(name), verified=name in promised and name not in broken)
        for name in PROPERTIES
    }
    failed = [f"{name} ({broken[name]})" for name in PROPERTIES if name in promised and name in broken]
    if failed and host.level != "none":
        raise SandboxError(
            f"level {host.level!r} failed its start-up check: {', '.join(failed)}; nothing was run. Please report the "
            "kernel version"
        )
    return Level(
        name=host.level,
        properties=properties,
        reasons=dict(host.reasons),
        trees=host.trees,
        no_overlay=host.no_overlay,
    )


def enforced_properties(host: Host) -> dict[str, str]:
    """Property to mechanism, for each property that the level promises on this machine."""
    level, abi = host.level, host.landlock_abi
    if level == "none":
        return {"cpu": "RLIMIT_CPU and the supervisor's timer", "mem_proc": "RLIMIT_DATA"}
    enforced = {
        "net": "seccomp: no socket but AF_UNIX",
        "vsock": "seccomp",
        "ptrace": "seccomp",
        "ipc": "seccomp: no System V IPC, message queues or keyrings",
        "privileges": "seccomp, no_new_privs, no capabilities",
        "mem_proc": "RLIMIT_DATA",
        "cpu": "RLIMIT_CPU and the cell's timer",
    }
    if host.has_cgroups:
        enforced["mem_total"] = "cgroup"
        enforced["pids"] = "cgroup"
    if level == "full":
        enforced |= {
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
        # The kernel never limits the processes of user id 0, mapped into a namespace or not.
        if not (host.user_namespace and os.geteuid() == 0):
            enforced.setdefault("pids", "RLIMIT_NPROC of a user id or user namespace of its own")
    if level in ("uid", "process") and abi:
        enforced |= {"fs_read": "Landlock", "fs_write": "Landlock", "cross_exec": "Landlock, wiped between programs"}
        if abi >= 6:
            enforced |= {"abstract_unix": "Landlock scope", "signals": "Landlock scope"}
    if level == "uid":
        enforced |= dict.fromkeys(("kill_tree", "signals", "fs_meta"), "a user id of its own")
        enforced.setdefault("pids", "RLIMIT_NPROC of a user id of its own")
    if level in ("process", "seccomp"):
        enforced["kill_tree"] = "child subreaper"
    return enforced
