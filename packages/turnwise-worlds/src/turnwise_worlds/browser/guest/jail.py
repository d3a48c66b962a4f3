"""The jail of a browser: namespaces in which it has loopback, a small temporary folder and nobody's rights.

Called in a process that was started for it and has one thread. It needs root or a kernel that lets users make
namespaces.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

from turnwise_sandbox.kernel import root, syscalls

NOBODY = 65534
SCRATCH = "/dev/shm"
"""The one folder that can be written, a tmpfs of the jail: Chromium's shared memory, profile and temporary files."""
_SHARED = syscalls.MS_REC | syscalls.MS_PRIVATE
_READ_ONLY = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY


def enter(scratch_bytes: int, packages: tuple[Path, ...]) -> list[str]:
    """Move to new namespaces; returns folders from which `packages` can be imported.

    `enter` returns in a grandchild alone: the process that called it waits for process 1 of the jail, which waits for
    the grandchild; each exits as the other did. With process 1 everything in the jail ends. Raises OSError,
    PermissionError where the kernel refuses namespaces.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWPID
    syscalls.unshare(flags if uid == 0 else flags | syscalls.CLONE_NEWUSER)
    if uid != 0:
        syscalls.enter_user_namespace(uid, gid)
    if child := os.fork():
        _exit_with(child)
    syscalls.set_pdeathsig(signal.SIGKILL)
    if child := os.fork():
        _exit_with(child)  # process 1, which also takes in and buries what others leave
    syscalls.mount("none", "/", None, _SHARED)
    root.mount_proc()
    syscalls.bring_loopback_up()
    _mount_scratch(scratch_bytes)
    folder = _copy_in(packages)
    for path in ("/tmp", "/var/tmp"):
        if os.path.isdir(path):
            syscalls.mount(path, path, None, syscalls.MS_BIND | syscalls.MS_REC)
            syscalls.mount("none", path, None, _READ_ONLY)
    return folder


def become_nobody() -> None:
    """Give up root's rights, so that Chromium can keep its own sandbox; another user stays as it is.

    What is imported later may be out of reach: an interpreter is often installed in a folder of its user.
    """
    if os.getuid() == 0:
        syscalls.set_identity(NOBODY, NOBODY)


def _exit_with(child: int) -> NoReturn:
    """Bury children until this one has ended, and exit as it did."""
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _mount_scratch(scratch_bytes: int) -> None:
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("turnwise-browser", SCRATCH, "tmpfs", flags, f"size={scratch_bytes},mode=1777")
    for name, variable in (("home", "HOME"), ("tmp", "TMPDIR")):
        path = f"{SCRATCH}/{name}"
        os.mkdir(path)
        os.chmod(path, 0o777)
        os.environ[variable] = path


def _copy_in(packages: tuple[Path, ...]) -> list[str]:
    """Show each package at a path that anybody can read, wherever it is installed."""
    folder = f"{SCRATCH}/packages"
    for package in packages:
        target = f"{folder}/{package.name}"
        os.makedirs(target)
        syscalls.mount(str(package), target, None, syscalls.MS_BIND)
    return [folder]
