"""Landlock: restricts what this process and its descendants may open, bind, connect to and signal.

A ruleset is a file descriptor, built once and applied with one irrevocable call. Rules follow inodes. A rule on a
folder covers everything that is later mounted below it, but not a file system mounted exactly on it, so name the parent
of a mount point. Under Landlock no mount call works, so mount first.

Landlock does not cover chmod, chown, stat, extended attributes, UDP and AF_VSOCK; read-only mounts, namespaces and
seccomp do."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from typing import Literal

from turnwise_sandbox.kernel.syscalls import syscall

Network = Literal["none", "loopback"]

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_NUM_ACCESS_BITS = {0: 0, 1: 13, 2: 14, 3: 15, 4: 15}
"""Number of file access bits by ABI; 16 from ABI 5 on (2 adds moves between folders, 3 truncation, 5 device ioctls)."""
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1 << 0, 1 << 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 if it is missing, disabled or refused."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def handled_access(abi: int) -> tuple[int, int, int]:
    """All restrictions of version `abi`: (file access bits, network bits, scope bits)."""
    files = (1 << _NUM_ACCESS_BITS.get(abi, 16)) - 1
    network = _BIND_TCP | _CONNECT_TCP if abi >= 4 else 0
    scopes = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if abi >= 6 else 0
    return files, network, scopes


def build_ruleset(
    *, read: Sequence[str] | None, read_write: Sequence[str] | None, abi: int, network: Network = "none"
) -> int:
    """A close-on-exec descriptor of a ruleset that allows reading and executing below `read`, and everything except
    making or controlling devices below `read_write`.

    None for both does not restrict files. `abi` is `landlock_abi()`. From ABI 4 on, TCP bind and connect are denied
    unless `network` is "loopback". From ABI 6 on, abstract unix sockets and signals reach only processes under the same
    ruleset. Raises ValueError for ABI 0 or an unknown network, FileNotFoundError for a path that does not exist."""
    if network not in ("none", "loopback"):
        raise ValueError(f"network {network!r}: it must be 'none' or 'loopback'")
    if abi < 1:
        raise ValueError("this kernel has no Landlock (ABI 0); check landlock_abi() first")
    files, tcp, scopes = handled_access(abi)
    if read is None and read_write is None:
        files = 0
    # The structure is longer in newer kernels; an older one refuses extra bytes that are not zero.
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = syscall(
        "landlock_create_ruleset", struct.pack("QQQ", files, tcp if network == "none" else 0, scopes), size, 0
    )
    try:
        for path in read or ():
            _allow_beneath(ruleset, path, files & _READ)
        for path in read_write or ():
            _allow_beneath(ruleset, path, files & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV))
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def build_signal_scope(*, abi: int) -> int:
    """A descriptor of a ruleset that restricts only signals and abstract unix sockets, to processes under the ruleset.

    Processes outside can still signal those inside. Raises ValueError for an ABI below 6.
    """
    if abi < 6:
        raise ValueError(f"Landlock ABI {abi} cannot scope signals; that needs ABI 6 (Linux 6.12)")
    return build_ruleset(read=None, read_write=None, abi=abi, network="loopback")


def restrict_self(ruleset_fd: int) -> None:
    """Apply a ruleset irrevocably to the calling thread and its future descendants. Call `set_no_new_privileges()`
    first. Raises OSError."""
    syscall("landlock_restrict_self", ruleset_fd, 0)


def _allow_beneath(ruleset: int, path: str, access: int) -> None:
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            access &= _OF_FILES
        syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", access, target), 0)
    finally:
        os.close(target)
