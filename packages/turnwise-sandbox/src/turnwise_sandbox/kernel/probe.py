"""Tests what this machine allows, by trying it, and derives the strongest level of isolation.

Every attempt runs in a child of a fresh interpreter, because most are irrevocable and because forking a process with
threads is unsafe. System settings are not read, since only the attempt shows whether something works. The canaries then
test whether the isolation holds."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel import landlock, overlay, root, seccomp, syscalls

LevelName = Literal["full", "uid", "process", "seccomp", "none"]

_UID_RANGES = ((1 << 31, 1 << 31), (20_000, 40_000))
"""First user id and number of ids: a range far above all users of a host, else one within a container's usual 65536."""
_UIDS_PER_OWNER = 512
_DEADLINE_S = 60.0
_MAPPING_FD = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What works on this machine."""

    direct_namespaces: bool
    """Namespaces with their own root and a change of user id, by this process's own privileges."""
    user_namespaces: bool
    """The same inside a user namespace."""
    first_uid: int | None
    """The first of `num_uids` user ids that cells can take without a user namespace; None if there are none."""
    num_uids: int = 0
    landlock_abi: int
    """The Landlock version, which refused a file in the test; 0 without Landlock."""
    seccomp: bool
    """Whether a seccomp filter refused a socket in the test."""
    has_children_file: bool
    """Whether /proc lists the children of a process, so that a subreaper can find orphans. Needed if a cell has neither
    a pid namespace nor a user id of its own."""
    overlay: bool = False
    """Whether the cells of level full can work in a tree of layers without copying it."""
    failures: dict[str, str] = field(default_factory=dict)
    """Name to error of each failed attempt."""

    def cell_uid(self, index: int) -> int:
        """The user id for cell number `index` of this process. Other processes and the next 511 cells get different
        ids, except that in a small range two processes may share some.

        Raises SandboxError if user ids cannot be changed.
        """
        if self.first_uid is None:
            raise SandboxError(f"cannot change user ids: {self.failures.get('other_uid', 'not tried')}")
        return self.first_uid + (os.getpid() * _UIDS_PER_OWNER + index % _UIDS_PER_OWNER) % (self.num_uids - 1)

    @property
    def reasons(self) -> dict[str, str]:
        """Name of each unavailable level to the reason."""
        lacking: dict[str, list[str]] = {
            "full": [] if self.direct_namespaces or self.user_namespaces else ["direct_namespaces", "user_namespaces"],
            "uid": [] if self.first_uid is not None else ["other_uid"],
            "process": [],
            "seccomp": [],
        }
        if not self.landlock_abi:
            lacking["uid"].append("landlock")
            lacking["process"].append("landlock")
        if not self.has_children_file:
            lacking["process"].append("children_file")
            lacking["seccomp"].append("children_file")
        if not self.seccomp:
            for names in lacking.values():
                names.append("seccomp")
        return {
            level: "; ".join(f"{name}: {self.failures.get(name, 'failed')}" for name in names)
            for level, names in lacking.items()
            if names
        }


def probe() -> Capabilities:
    """Try everything in a fresh interpreter, in about 100 ms. Raises SandboxError if the interpreter itself fails."""
    start = "import sys; sys.path.insert(0, sys.argv[1]); from turnwise_sandbox.kernel.probe import main; main()"
    command = [sys.executable, "-I", "-c", start, str(Path(__file__).parents[2])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_DEADLINE_S, stdin=subprocess.DEVNULL, check=True)
        return Capabilities(**json.loads(done.stdout))
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SandboxError(
            f"the interpreter that tests this machine failed with status {error.returncode}: {last}"
        ) from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise SandboxError(f"the interpreter that tests this machine failed: {error}") from error


def main() -> None:
    """Run in the fresh interpreter: print the fields of `Capabilities` as JSON."""
    sys.stdout.write(json.dumps(_capabilities()))


def best_level(capabilities: Capabilities) -> LevelName:
    """The strongest available level."""
    levels: tuple[LevelName, ...] = ("full", "uid", "process", "seccomp")
    reasons = capabilities.reasons
    return next((level for level in levels if level not in reasons), "none")


def try_in_child(attempt: Callable[[], None], flags: int = 0) -> str | None:
    """Run `attempt` in a clone with CLONE_* `flags`. Returns None if it succeeds, else the error. The calling process
    must have one thread only."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = syscalls.clone_process(flags)
    except OSError as error:
        os.close(reader)
        os.close(writer)
        return str(error)
    if pid == 0:
        status = 1
        try:
            attempt()
            status = 0
        except (OSError, SandboxError, ValueError) as error:
            os.write(writer, str(error).encode()[:2000])
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None if status == 0 else text or f"exit status {status}"


def _capabilities() -> dict[str, Any]:
    """Make each attempt; returns the fields of `Capabilities`."""
    failures: dict[str, str] = {}

    def works(name: str, attempt: Callable[[], None], flags: int = 0) -> bool:
        failure = try_in_child(attempt, flags)
        if failure is not None:
            failures[name] = failure
        return failure is None

    uid_range = next(
        (ids for ids in _UID_RANGES if works("other_uid", functools.partial(_change_user, ids[0] + 1))), None
    )
    if uid_range is not None:
        failures.pop("other_uid", None)
    ids = os.geteuid(), os.getegid()
    flags = (
        syscalls.CLONE_NEWPID
        | syscalls.CLONE_NEWNS
        | syscalls.CLONE_NEWNET
        | syscalls.CLONE_NEWIPC
        | syscalls.CLONE_NEWUTS
    )
    direct = uid_range is not None and works("direct_namespaces", lambda: _isolate(None, uid_range[0] + 1), flags)
    if uid_range is None:
        failures["direct_namespaces"] = failures["other_uid"]
    user = works("user_namespaces", lambda: _isolate(ids, None), flags | syscalls.CLONE_NEWUSER)
    with tempfile.TemporaryDirectory() as store:
        os.makedirs(f"{store}/layer/folder")
        with open(f"{store}/layer/folder/file", "wb") as file:
            file.write(b"content")
        has_overlay = (direct or user) and works(
            "overlay",
            lambda: _isolate(None if direct else ids, uid_range[0] + 1 if direct and uid_range else None, store),
            flags | (0 if direct else syscalls.CLONE_NEWUSER),
        )
    has_children_file = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
    if not has_children_file:
        failures["children_file"] = "/proc does not list a process's children, so orphans could not be found and ended"
    abi = landlock.landlock_abi()
    if abi == 0:
        failures["landlock"] = "the kernel has no Landlock, or it is disabled"
    return {
        "direct_namespaces": direct,
        "user_namespaces": user,
        "overlay": has_overlay,
        "first_uid": uid_range[0] if uid_range else None,
        "num_uids": uid_range[1] if uid_range else 0,
        "landlock_abi": abi if abi and works("landlock", lambda: _refuse_a_file(abi)) else 0,
        "seccomp": works("seccomp", _refuse_a_socket),
        "has_children_file": has_children_file,
        "failures": failures,
    }


def _change_user(uid: int) -> None:
    syscalls.set_identity(uid, uid)


def _isolate(mapped: tuple[int, int] | None, uid: int | None, store: str | None = None) -> None:
    """Build a zygote's root in fresh namespaces, then a cell's namespaces, scratch folder and user inside it. With a
    `store`, which has one layer, the cell works in a tree."""
    if mapped is not None:
        syscalls.enter_user_namespace(*mapped)
    root.build_root(store=store)
    owner = (uid, overlay.map_owner(uid, _MAPPING_FD)) if store is not None and uid is not None else None
    flags = (
        syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC | (syscalls.CLONE_NEWUSER if mapped else 0)
    )
    failure = try_in_child(lambda: _settle(mapped, uid) if store is None else _settle_in_tree(mapped, owner), flags)
    if failure is not None:
        raise SandboxError(failure)


def _settle(mapped: tuple[int, int] | None, uid: int | None) -> None:
    if mapped is not None:
        syscalls.enter_user_namespace(*mapped)
    root.mount_scratch(root.SCRATCH, bytes=1 << 20, inodes=16)
    root.mount_proc()
    if uid is not None:
        _change_user(uid)
    root.make_folders(root.SCRATCH)
    with open(os.path.join(root.SCRATCH, "work", "file"), "wb") as file:
        file.write(b"x")


def _settle_in_tree(mapped: tuple[int, int] | None, owner: tuple[int, int] | None) -> None:
    if mapped is not None:
        syscalls.enter_user_namespace(*mapped)
    overlay.try_tree(root.SCRATCH, "layer", owner)


def _refuse_a_file(abi: int) -> None:
    syscalls.drop_privileges()
    landlock.restrict_self(landlock.build_ruleset(read=["/usr"], read_write=[], abi=abi))
    os.close(os.open("/usr", os.O_RDONLY))
    try:
        os.close(os.open("/", os.O_RDONLY))
    except PermissionError:
        return
    raise SandboxError("Landlock allowed an unlisted folder to be opened")


def _refuse_a_socket() -> None:
    syscalls.drop_privileges()
    seccomp.install_filter(seccomp.build_filter(network="none"))
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError:
        return
    raise SandboxError("seccomp allowed an internet socket to be created")
