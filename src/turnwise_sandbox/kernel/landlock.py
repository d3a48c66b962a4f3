"""Landlock: what this process and its descendants may open, bind, connect to and signal, whatever their user id.

A ruleset is built once (a file descriptor) and applied with one call, irrevocably. Rules follow inodes, and a rule on a
folder covers everything mounted below it later, but not a file system mounted exactly on it: name the parent of a mount
point. Under Landlock no mount call works, so mount first.

It does not know which paths a sandbox needs. It does not cover chmod, chown, stat, extended attributes, UDP or
AF_VSOCK: read-only mounts, namespaces and seccomp do."""

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
"""File access bits by ABI; 16 from ABI 5 on (2 adds moves between folders, 3 truncation, 5 device ioctls)."""
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1 << 0, 1 << 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 where it is not built in, disabled or refused."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def handled_access(abi: int) -> tuple[int, int, int]:
    """All restrictions that `abi` knows: (file access bits, network bits, scope bits)."""
    files = (1 << _NUM_ACCESS_BITS.get(abi, 16)) - 1
    network = _BIND_TCP | _CONNECT_TCP if abi >= 4 else 0
    scopes = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if abi >= 6 else 0
    return files, network, scopes


def build_ruleset(
    *, read: Sequence[str] | None, read_write: Sequence[str] | None, abi: int, network: Network = "none"
) -> int:
    """A close-on-exec ruleset fd that allows reading and executing below `read`, and everything but devices below
    `read_write`.

    None for both leaves files alone. `abi` is `landlock_abi()`; 0 raises ValueError. From ABI 4 on TCP bind and connect
    are denied unless network is "loopback"; from 6 on abstract unix sockets and signals do not leave the processes
    restricted together. A path that does not exist raises FileNotFoundError."""
    if network not in ("none", "loopback"):
        raise ValueError(f"network {network!r}: it must be 'none' or 'loopback'")
    if abi < 1:
        raise ValueError("this kernel has no Landlock (ABI 0); check landlock_abi() first")
    files, tcp, scopes = handled_access(abi)
    if read is None and read_write is None:
        files = 0
    size = (
        8 if abi < 4 else 16 if abi < 6 else 24
    )  # the structure grew; an older kernel refuses a longer one that is not zero
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
    """A ruleset fd for the innermost of nested processes: it keeps signals and abstract unix sockets inside, and leaves
    the rest alone.

    The processes around may still signal it. ABI below 6 raises ValueError.
    """
    if abi < 6:
        raise ValueError(f"Landlock ABI {abi} cannot scope signals; it takes ABI 6 (Linux 6.12)")
    return build_ruleset(read=None, read_write=None, abi=abi, network="loopback")


def restrict_self(ruleset_fd: int) -> None:
    """Apply a ruleset to the calling thread and all its future descendants, for good. Needs `set_no_new_privileges()`
    before."""
    syscall("landlock_restrict_self", ruleset_fd, 0)


def _allow_beneath(ruleset: int, path: str, access: int) -> None:
    target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            access &= _OF_FILES
        syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", access, target), 0)
    finally:
        os.close(target)
