"""System calls that the standard library lacks: clone, namespaces, mounts, prctl, capabilities, huge pages, loopback.

All go through `syscall()`, which keeps the interpreter lock, because the caller is often a fresh child that must not
wait, and which raises OSError. Use the function of `os` or `signal` for a call that has one (`pidfd_open`,
`pidfd_send_signal`, `closerange`, `memfd_create`), except among the first steps of a cell, which are recorded."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Literal, overload

from turnwise_sandbox.kernel.syscall_numbers import syscall_numbers

NUMBERS = syscall_numbers(os.uname().machine)
"""Call numbers of this machine by name."""

CLONE_PIDFD = 0x00001000
CLONE_PARENT = 0x00008000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
_CLONE_CHILD_CLEARTID = 0x00200000
_CLONE_CHILD_SETTID = 0x01000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 0x2

AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, AT_RECURSIVE = -100, 0x1000, 0x100, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 0x1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x4
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 0x1, 0x2, 0x4, 0x8
_MOUNT_ATTR_IDMAP = 0x100000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_GET_TID_ADDRESS, _PR_CAP_AMBIENT = 36, 38, 40, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

MADV_COLLAPSE = 25
HUGE_PAGE_BYTES = 2 << 20


_libc = ctypes.PyDLL(None, use_errno=True)
_raw_syscall = _libc.syscall
_raw_syscall.restype = ctypes.c_long
_raw_syscall.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 6


def syscall(name: str, *arguments: object) -> int:
    """Make one raw call with at most six arguments: ints, bytes or ctypes buffers. Raises OSError naming the call, also
    for EINTR."""
    number = NUMBERS.get(name)
    if number is None:
        raise OSError(errno.ENOSYS, f"{name}: no such system call on {os.uname().machine}")
    if _recording is not None:
        _recording.append((number, *arguments, *(0,) * (6 - len(arguments))))
        return 0
    result: int = _raw_syscall(number, *arguments, *(0,) * (6 - len(arguments)))
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


_SETGROUPS, _SETRESGID, _SETRESUID = (NUMBERS[name] for name in ("setgroups", "setresgid", "setresuid"))

Call = tuple[object, ...]
"""A system call: its number and six arguments."""
_recording: list[Call] | None = None


def record(action: Callable[[], object]) -> list[Call]:
    """Run `action` and return the system calls that it asks this module for, without making them; see `perform`. Other
    effects of `action` happen. The process must have one thread, since the calls of others would be recorded too."""
    global _recording
    calls: list[Call] = []
    _recording = calls
    try:
        action()
    finally:
        _recording = None
    return calls


def perform(calls: Sequence[Call]) -> None:
    """Make recorded calls one after the other, touching few pages in a fresh fork, where each would be copied. Raises
    OSError naming the first call that fails."""
    for call in calls:
        if _raw_syscall(*call) == -1:
            code = ctypes.get_errno()
            name = next(name for name, number in NUMBERS.items() if number == call[0])
            raise OSError(code, f"{name}: {os.strerror(code)}")


@overload
def clone_process(flags: int, *, pidfd: Literal[True]) -> tuple[int, int]: ...


@overload
def clone_process(flags: int = 0, *, pidfd: Literal[False] = False) -> int: ...


def clone_process(flags: int = 0, *, pidfd: bool = False) -> int | tuple[int, int]:
    """Fork through raw clone(2) into new namespaces. Returns 0 in the child and the child's pid in the parent.

    With `pidfd`, also returns a close-on-exec pidfd of the child: (pid, fd) in the parent, (0, -1) in the child.
    `flags` are CLONE_NEW* bits, CLONE_PARENT (the child becomes a sibling) or 0. Unlike `os.fork`, it runs no
    after-fork handlers: the caller must have one thread only, since a lock held by another thread would block the child
    forever, and the child must reseed what needs it. If the kernel tells where the C library stores the thread id, the
    child's is stored there. Raises OSError: EPERM without privileges, ENOSPC at the limit of namespaces, EAGAIN at the
    limit of processes."""
    handle = ctypes.c_int(-1)
    if not pidfd:
        return _clone(flags, 0)
    pid = _clone(flags | CLONE_PIDFD, ctypes.addressof(handle))
    return (pid, handle.value) if pid else (0, -1)


_IS_X86 = os.uname().machine == "x86_64"
_SIGCHLD = int(signal.SIGCHLD)
_tid_address: list[int] = []
"""Where the C library stores this thread's id; empty before the first clone. Every fork has the same address."""


def _clone(flags: int, parent_tid: int) -> int:
    if not _tid_address:
        address = ctypes.c_long(0)
        # Without checkpoint support in the kernel the address stays unknown, and mutex owners in the child are stale.
        with contextlib.suppress(OSError):
            syscall("prctl", _PR_GET_TID_ADDRESS, ctypes.addressof(address))
        _tid_address.append(address.value)
    child_tid = _tid_address[0]
    if child_tid:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    # x86_64 takes (flags, stack, parent_tid, child_tid, tls), aarch64 (flags, stack, parent_tid, tls, child_tid); tls
    # is unused here.
    first, second = (child_tid, 0) if _IS_X86 else (0, child_tid)
    # Without `syscall()`, because each page that is touched here is copied for every program.
    pid: int = _raw_syscall(NUMBERS["clone"], flags | _SIGCHLD, 0, parent_tid, first, second, 0)
    if pid == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"clone: {os.strerror(code)}")
    return pid


def unshare(flags: int) -> None:
    """Move the caller into new namespaces (CLONE_NEW* bits); NEWPID applies to its later children. Raises OSError."""
    syscall("unshare", flags)


def setns(fd: int, flags: int) -> None:
    """Join the namespaces of `fd` (a namespace file or a pidfd) of the CLONE_NEW* kinds in `flags`. Raises OSError."""
    syscall("setns", fd, flags)


def mount(source: str | None, target: str, filesystem: str | None, flags: int = 0, options: str | None = None) -> None:
    """Call mount(2); None becomes a null pointer. Raises OSError naming the target."""
    try:
        syscall("mount", _c_string(source), _c_string(target), _c_string(filesystem), flags, _c_string(options))
    except OSError as error:
        raise OSError(
            error.errno, f"mount {filesystem or source or ''}: {os.strerror(error.errno or 0)}", target
        ) from error


def umount(target: str, flags: int = MNT_DETACH) -> None:
    """Call umount2(2), by default detaching lazily. Raises OSError."""
    syscall("umount2", _c_string(target), flags)


def pivot_root(new_root: str, put_old: str) -> None:
    """Call pivot_root(2). Raises OSError, EINVAL if the present root is a ramdisk or a chroot."""
    syscall("pivot_root", _c_string(new_root), _c_string(put_old))


def open_tree(path: str) -> int:
    """A detached, private copy of the mounts at and below `path`, as a close-on-exec descriptor for `move_mount`.
    Raises OSError naming the path."""
    try:
        return syscall("open_tree", AT_FDCWD, _c_string(path), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    except OSError as error:
        raise OSError(error.errno, f"open_tree: {os.strerror(error.errno or 0)}", path) from error


def move_mount(tree_fd: int, target: str) -> None:
    """Attach a detached mount tree at `target`. Raises OSError naming the target."""
    try:
        syscall("move_mount", tree_fd, b"\0", AT_FDCWD, _c_string(target), MOVE_MOUNT_F_EMPTY_PATH)
    except OSError as error:
        raise OSError(error.errno, f"move_mount: {os.strerror(error.errno or 0)}", target) from error


def set_mount_attributes(fd: int, attributes: int, *, recursive: bool) -> None:
    """Add MOUNT_ATTR_* bits to the mount at the root of `fd`'s tree, and with `recursive` to all below it. Needs Linux
    5.12."""
    request = struct.pack("QQQQ", attributes, 0, 0, 0)
    syscall("mount_setattr", fd, b"\0", AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0), request, len(request))


def map_owners(fd: int, user_namespace: int) -> None:
    """Show the files of the detached mount `fd` under the owners that the namespace's mapping gives them. Needs Linux
    5.12, a file system that supports it, and CAP_SYS_ADMIN where the file system was mounted. Raises OSError."""
    request = struct.pack("QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, user_namespace)
    syscall("mount_setattr", fd, b"\0", AT_EMPTY_PATH, request, len(request))


def set_no_new_privileges() -> None:
    """Let no exec gain privileges (set-user-id bits, file capabilities). Inherited and irrevocable."""
    syscall("prctl", _PR_SET_NO_NEW_PRIVS, 1)


def set_dumpable(dumpable: bool) -> None:
    """Set the dumpable flag. False means no core dump, no ptrace by the same user, and a /proc/self that belongs to
    root. Forks inherit the flag; exec resets it to True."""
    syscall("prctl", _PR_SET_DUMPABLE, int(dumpable))


def set_pdeathsig(number: int = signal.SIGKILL) -> None:
    """Set the signal that this process gets when the thread that created it ends. Not inherited, and lost when user ids
    change, so set it afterwards.

    The parent may have ended before: compare `os.getppid()` before and after.
    """
    syscall("prctl", _PR_SET_PDEATHSIG, number)


def set_child_subreaper(enabled: bool = True) -> None:
    """Make orphaned descendants children of this process instead of pid 1."""
    syscall("prctl", _PR_SET_CHILD_SUBREAPER, int(enabled))


def drop_bounding_set() -> None:
    """Let no exec gain a capability from a file. Inherited. Does nothing without CAP_SETPCAP."""
    try:
        for capability in range(64):
            syscall("prctl", _PR_CAPBSET_DROP, capability)
    except OSError as error:
        # EINVAL: past the last capability. EPERM: without privileges there is nothing to drop.
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise


def drop_all_capabilities() -> None:
    """Empty the ambient, effective, permitted and inheritable capability sets, irrevocably."""
    syscall("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    syscall("capset", struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24))


def drop_privileges(*, bounding_set: bool = True) -> None:
    """Drop all capabilities, and let no exec gain privileges. Call it after every step that needs them (mounts, user
    ids).

    Give `bounding_set=False` if the bounding set was dropped before, which saves about 40 calls.
    """
    set_no_new_privileges()
    if bounding_set:
        drop_bounding_set()
    drop_all_capabilities()


def set_identity(uid: int, gid: int) -> None:
    """Become another user: replace all user and group ids and drop supplementary groups. Raises PermissionError without
    CAP_SETUID and CAP_SETGID."""
    perform(
        ((_SETGROUPS, 0, 0, 0, 0, 0, 0), (_SETRESGID, gid, gid, gid, 0, 0, 0), (_SETRESUID, uid, uid, uid, 0, 0, 0))
    )


def enter_user_namespace(uid: int, gid: int) -> None:
    """Map a process's user and group to themselves, after a clone with CLONE_NEWUSER. `uid` and `gid` are the ids
    before the clone.

    Without the mapping the process cannot make files. Makes the process dumpable, because /proc/self otherwise belongs
    to root. Raises OSError without /proc, and if the host forbids unprivileged namespaces (EPERM, EACCES).
    """
    set_dumpable(True)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def close_range(first: int) -> bool:
    """Close every descriptor from `first` on. False if the kernel lacks the call (before 5.9)."""
    try:
        syscall("close_range", first, 0xFFFFFFFF, 0)
    except OSError:
        return False
    return True


def bring_loopback_up() -> None:
    """Activate the `lo` interface of the present network namespace. Raises OSError, EPERM if the namespace is the
    host's."""
    import fcntl  # not at the top: every loaded library slows down every fork

    get_flags, set_flags, interface_up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        name, flags = struct.unpack_from("16sh", fcntl.ioctl(sock, get_flags, struct.pack("16sh22x", b"lo", 0)))
        fcntl.ioctl(sock, set_flags, struct.pack("16sh22x", name, flags | interface_up))


def collapse_heap() -> int:
    """Move this process's private anonymous memory into huge pages, so that forks copy fewer page-table entries.

    Returns the number of bytes moved: 0 without MADV_COLLAPSE (before Linux 6.1), huge pages or /proc. Call it after
    preloading and before the first fork. Never raises, since small pages are only slower. Memory that is not in use
    stays in small pages: OpenBLAS reserves 32 MiB, and the first touch of a huge page there would clear 2 MiB.
    """
    collapsed = 0
    for start, end in _anonymous_areas():
        first, last = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, end // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        for address in range(first, last, HUGE_PAGE_BYTES):
            try:
                syscall("madvise", address, HUGE_PAGE_BYTES, MADV_COLLAPSE)
                collapsed += HUGE_PAGE_BYTES
            except OSError:  # EINVAL: no such advice; EAGAIN or ENOMEM: no huge page available; EBUSY: pinned
                continue
    return collapsed


def _anonymous_areas() -> list[tuple[int, int]]:
    try:
        with open("/proc/self/maps", "rb") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    areas = []
    for row in rows:
        if row[1] == b"rw-p" and (len(row) == 5 or row[5] == b"[heap]"):
            start, _, end = row[0].partition(b"-")
            areas.append((int(start, 16), int(end, 16)))
    return areas


def _c_string(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)
