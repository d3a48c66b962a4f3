"""System calls that the standard library does not wrap: raw clone, namespaces, mounts, prctl, capabilities, huge pages,
loopback.

Everything goes through one `syscall()` binding that keeps the interpreter lock (the caller is often a fresh child that
must not wait) and turns errno into OSError. Where `os` or `signal` already has a call (`pidfd_open`,
`pidfd_send_signal`, `closerange`, `memfd_create`, `socket.sethostname`), use that one, unless it belongs to what a cell
does on its way in, which is recorded. It does not know what the calls are combined for."""

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
    """The result of one raw call, at most six arguments: ints, bytes or ctypes buffers. Raises OSError naming the call;
    EINTR included."""
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
"""One system call, ready to be made: its number and six arguments."""
_recording: list[Call] | None = None


def record(action: Callable[[], object]) -> list[Call]:
    """The system calls that `action` makes through this module, not made but kept for `perform`. What it does otherwise
    happens now. For a process with one thread: whatever calls meanwhile is recorded too."""
    global _recording
    calls: list[Call] = []
    _recording = calls
    try:
        action()
    finally:
        _recording = None
    return calls


def perform(calls: Sequence[Call]) -> None:
    """Make recorded calls one after the other. A fresh fork then touches a fraction of the pages that the wrappers
    would, each of which would have to be copied. Raises OSError naming the first that fails."""
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
    """Fork through raw clone(2) into new namespaces: 0 in the child, the pid (as the caller sees it) in the parent.

    With `pidfd`, also a close-on-exec pidfd of the child: (pid, fd) in the parent, (0, -1) in the child. `flags` are
    CLONE_NEW* bits, CLONE_PARENT (the child becomes a sibling) or 0. Like fork, but Python's after-fork handlers and
    `os.register_at_fork` do not run: the caller must have one thread only (a lock that another one holds or waits for
    in that moment stops the child for good), and the child reseeds what needs reseeding. The C library's own record of
    the thread id is kept right where the kernel tells its address. Raises OSError (EPERM without the privilege, ENOSPC
    when namespaces are used up, EAGAIN at a process limit)."""
    handle = ctypes.c_int(-1)
    if not pidfd:
        return _clone(flags, 0)
    pid = _clone(flags | CLONE_PIDFD, ctypes.addressof(handle))
    return (pid, handle.value) if pid else (0, -1)


_IS_X86 = os.uname().machine == "x86_64"
_SIGCHLD = int(signal.SIGCHLD)
_tid_address: list[int] = []
"""Where the C library keeps this thread's id, once known: the same in every fork, since forking changes no address."""


def _clone(flags: int, parent_tid: int) -> int:
    if not _tid_address:
        found = ctypes.c_long(0)
        with contextlib.suppress(
            OSError
        ):  # kernels without checkpoint support do not tell; only mutex owners of the child are then stale
            syscall("prctl", _PR_GET_TID_ADDRESS, ctypes.addressof(found))
        _tid_address.append(found.value)
    child_tid = _tid_address[0]
    if child_tid:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    # x86_64 takes (flags, stack, parent_tid, child_tid, tls), aarch64 (flags, stack, parent_tid, tls, child_tid); tls
    # is unused here.
    first, second = (child_tid, 0) if _IS_X86 else (0, child_tid)
    # Not through `syscall()`: this is the one call whose every page touched is paid for in each program.
    pid: int = _raw_syscall(NUMBERS["clone"], flags | _SIGCHLD, 0, parent_tid, first, second, 0)
    if pid == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"clone: {os.strerror(code)}")
    return pid


def unshare(flags: int) -> None:
    """Move the caller into new namespaces (CLONE_NEW* bits); NEWPID concerns its later children. Raises OSError."""
    syscall("unshare", flags)


def setns(fd: int, flags: int) -> None:
    """Join the namespaces behind `fd` (a namespace file or a pidfd), restricted to the CLONE_NEW* kinds in `flags`."""
    syscall("setns", fd, flags)


def mount(source: str | None, target: str, filesystem: str | None, flags: int = 0, options: str | None = None) -> None:
    """mount(2); None is a null pointer. Raises OSError naming the target."""
    try:
        syscall("mount", _c_string(source), _c_string(target), _c_string(filesystem), flags, _c_string(options))
    except OSError as error:
        raise OSError(
            error.errno, f"mount {filesystem or source or ''}: {os.strerror(error.errno or 0)}", target
        ) from error


def umount(target: str, flags: int = MNT_DETACH) -> None:
    """umount2(2); detaches lazily unless told otherwise."""
    syscall("umount2", _c_string(target), flags)


def pivot_root(new_root: str, put_old: str) -> None:
    """pivot_root(2). EINVAL where the present root is a ramdisk or a chroot."""
    syscall("pivot_root", _c_string(new_root), _c_string(put_old))


def open_tree(path: str) -> int:
    """A detached, private copy of the mount tree at `path` (submounts included) as a close-on-exec fd; attach it with
    `move_mount`."""
    try:
        return syscall("open_tree", AT_FDCWD, _c_string(path), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    except OSError as error:
        raise OSError(error.errno, f"open_tree: {os.strerror(error.errno or 0)}", path) from error


def move_mount(tree_fd: int, target: str) -> None:
    """Attach a detached mount tree at `target`."""
    try:
        syscall("move_mount", tree_fd, b"\0", AT_FDCWD, _c_string(target), MOVE_MOUNT_F_EMPTY_PATH)
    except OSError as error:
        raise OSError(error.errno, f"move_mount: {os.strerror(error.errno or 0)}", target) from error


def set_mount_attributes(fd: int, attributes: int, *, recursive: bool) -> None:
    """Add MOUNT_ATTR_* bits to the mount that is the root of `fd`'s tree, and to all below it if `recursive` (Linux
    5.12)."""
    request = struct.pack("QQQQ", attributes, 0, 0, 0)
    syscall("mount_setattr", fd, b"\0", AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0), request, len(request))


def set_no_new_privileges() -> None:
    """From now on no exec gains privileges (set-user-id bits, file capabilities); inherited, cannot be undone."""
    syscall("prctl", _PR_SET_NO_NEW_PRIVS, 1)


def set_dumpable(dumpable: bool) -> None:
    """False: no core dump, no ptrace by the same user, and /proc/self belongs to root. Inherited by fork, reset to True
    by exec."""
    syscall("prctl", _PR_SET_DUMPABLE, int(dumpable))


def set_pdeathsig(number: int = signal.SIGKILL) -> None:
    """The signal this process gets when the thread that created it ends. Not inherited; lost when user ids change, so
    set it after that.

    The parent may be gone already: compare `os.getppid()` before and after.
    """
    syscall("prctl", _PR_SET_PDEATHSIG, number)


def set_child_subreaper(enabled: bool = True) -> None:
    """Orphaned descendants become children of this process instead of pid 1."""
    syscall("prctl", _PR_SET_CHILD_SUBREAPER, int(enabled))


def drop_bounding_set() -> None:
    """No exec from here on gains a capability, whatever the file says. Inherited; does nothing without CAP_SETPCAP."""
    try:
        for capability in range(64):
            syscall("prctl", _PR_CAPBSET_DROP, capability)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.EPERM,
        ):  # past the last capability; or not privileged, and then nothing to bound
            raise


def drop_all_capabilities() -> None:
    """Empty the ambient, effective, permitted and inheritable sets. No way back."""
    syscall("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    syscall("capset", struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24))


def drop_privileges(*, bounding_set: bool = True) -> None:
    """No new privileges from exec, and no capability left. Call after everything that needs one (mounts, user ids).

    `bounding_set=False` where that was dropped before, which saves some 40 calls.
    """
    set_no_new_privileges()
    if bounding_set:
        drop_bounding_set()
    drop_all_capabilities()


def set_identity(uid: int, gid: int) -> None:
    """Become another user: no supplementary groups, all user and group ids replaced. Needs CAP_SETUID and CAP_SETGID
    (PermissionError)."""
    perform(
        ((_SETGROUPS, 0, 0, 0, 0, 0, 0), (_SETRESGID, gid, gid, gid, 0, 0, 0), (_SETRESUID, uid, uid, uid, 0, 0, 0))
    )


def enter_user_namespace(uid: int, gid: int) -> None:
    """In a process just cloned with CLONE_NEWUSER: map its one user and group to themselves (`uid`, `gid`: the ids
    before the clone).

    Until then the process has no name there and can make no files. Makes itself dumpable, since /proc/self belongs to
    root otherwise.
    Raises OSError where /proc is not mounted or the host forbids unprivileged namespaces to be used (EPERM, EACCES).
    """
    set_dumpable(True)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def close_range(first: int) -> bool:
    """Close every descriptor from `first` on. False where the kernel lacks the call (before 5.9)."""
    try:
        syscall("close_range", first, 0xFFFFFFFF, 0)
    except OSError:
        return False
    return True


def bring_loopback_up() -> None:
    """Set the `lo` interface of the present network namespace up. Raises OSError (EPERM outside a namespace of one's
    own)."""
    import fcntl  # not at the top: every library loaded costs every fork

    get_flags, set_flags, interface_up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        name, flags = struct.unpack_from("16sh", fcntl.ioctl(sock, get_flags, struct.pack("16sh22x", b"lo", 0)))
        fcntl.ioctl(sock, set_flags, struct.pack("16sh22x", name, flags | interface_up))


def collapse_heap() -> int:
    """Move this process's private anonymous memory into huge pages, so that forks copy fewer page-table entries.

    Returns the bytes that were collapsed: 0 where the kernel lacks MADV_COLLAPSE (before 6.1), huge pages or /proc.
    Call it after preloading, before the first fork. Never raises: memory that does not collapse is merely slower. What
    is not in use yet stays in small
    pages: OpenBLAS reserves 32 MiB, and a program's first touch of a huge page there would clear 2 MiB.
    """
    collapsed = 0
    for start, end in _anonymous_areas():
        first, last = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, end // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        for address in range(first, last, HUGE_PAGE_BYTES):
            try:
                syscall("madvise", address, HUGE_PAGE_BYTES, MADV_COLLAPSE)
                collapsed += HUGE_PAGE_BYTES
            except OSError:  # EINVAL: no such advice; EAGAIN or ENOMEM: no huge page to be had; EBUSY: pinned
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
