"""seccomp: builds the filter of the system calls that a sandboxed program may make, as a classic BPF program.

The filter is an allow-list of what CPython with its scientific packages, pytest, bash, coreutils and gcc need. Calls
that would reach outside fail with EPERM. Calls that programs can do without (io_uring, clone3, and all that are unknown
or newer than the table) fail with ENOSYS. A call through another architecture's entry point kills the process. Some
calls are allowed for certain arguments only. A filter cannot follow pointers, so clone3 is refused and the C library
falls back to clone.

Paths are restricted by Landlock and mounts, amounts by limits and cgroups. kill(2) is allowed, since a filter cannot
distinguish the processes of a user."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
from collections.abc import Iterable
from typing import Literal, NamedTuple

from turnwise_sandbox.kernel.syscall_numbers import syscall_numbers
from turnwise_sandbox.kernel.syscalls import (
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
)
from turnwise_sandbox.kernel.syscalls import syscall as call

Network = Literal["none", "loopback"]

_ALLOWED = """
accept accept4 access alarm arch_prctl bind brk capget capset chdir chmod chown clock_getres clock_gettime
clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2
fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork
fstat fstatfs fsync ftruncate futex futex_waitv futimesat getcpu getcwd getdents getdents64 getegid geteuid getgid
getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr inotify_add_watch inotify_init inotify_init1
inotify_rm_watch ioprio_get kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link
linkat listen listxattr llistxattr lseek lstat madvise membarrier mincore mkdir mkdirat mlock mlock2 mlockall mmap
mprotect mremap msync munlock munlockall munmap nanosleep newfstatat open openat openat2 pause pidfd_send_signal pipe
pipe2 poll ppoll pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
recvfrom recvmmsg recvmsg rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
sched_yield select sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setfsgid setfsuid setgid setgroups
setitimer setpgid setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid shutdown sigaltstack signalfd
signalfd4 stat statfs statx symlink symlinkat sync_file_range sysinfo tgkill time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask
uname unlink unlinkat utime utimensat utimes vfork wait4 waitid write writev """
_DENIED = """
_sysctl acct add_key adjtimex bpf chroot clock_adjtime clock_settime delete_module fanotify_init fanotify_mark
finit_module fsconfig fsmount fsopen fspick get_robust_list init_module ioperm iopl ioprio_set kcmp kexec_file_load
kexec_load keyctl lookup_dcookie mbind migrate_pages modify_ldt mount mount_setattr move_mount move_pages mq_getsetattr
mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd name_to_handle_at open_by_handle_at
open_tree perf_event_open personality pidfd_getfd pidfd_open pivot_root process_madvise process_mrelease
process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key seccomp semctl semget semop semtimedop
set_mempolicy setdomainname sethostname setns settimeofday shmat shmctl shmdt shmget swapoff swapon syslog umount2
unshare userfaultfd vhangup """
_NO_ATTRIBUTES = "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr"
"""Extended attributes take kernel memory outside every quota; programs that copy them continue without them."""
_PRETENDED = "sync syncfs"
"""Calls that do nothing and report success: they would flush the disks of the whole machine, and the sandbox's files
are in memory."""

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _JUMP, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x54, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENTS = 0, 4, 16
_ENOTTY, _EAFNOSUPPORT, _EPROTONOSUPPORT, _EOPNOTSUPP = (
    errno.ENOTTY,
    errno.EAFNOSUPPORT,
    errno.EPROTONOSUPPORT,
    errno.EOPNOTSUPP,
)

_CLONE_PTRACE = 0x00002000
_FORBIDDEN_CLONE_FLAGS = (
    CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET
    | _CLONE_PTRACE
)
_TERMINAL_IOCTLS = (
    0x5401,
    0x5402,
    0x5403,
    0x5404,
    0x5409,
    0x540A,
    0x540B,
    0x540F,
    0x5410,
    0x5411,
    0x5413,
    0x5414,
    0x5429,
    0x802C542A,
)
_FILE_IOCTLS = (
    0x541B,
    0x5421,
    0x5450,
    0x5451,
    0x5452,
    0x5460,
)  # bytes waiting, non-blocking, close-on-exec on and off, async, size
_INTERFACE_IOCTLS = (
    0x8910,
    0x8912,
    0x8913,
    0x8915,
    0x891B,
    0x8921,
    0x8927,
    0x8933,
)  # reading names, flags and addresses only
_HARMLESS_PRCTLS = (2, 3, 4, 7, 15, 16, 21, 23, 27, 29, 30, 38, 39, 40, 41, 42, 0x53564D41)
"""prctl options: getters, dumpable, the thread's name, timer slack, no-new-privileges, disabling transparent huge
pages, names of memory areas."""
_SET_DEATH_SIGNAL, _SIGKILL = 1, 9
_AF_UNIX, _AF_INET, _AF_INET6, _SOCK_STREAM, _SOCK_DGRAM, _SOCK_TYPE_MASK = 1, 2, 10, 1, 2, 0xF
_FILE_TYPE_MASK, _CHARACTER_DEVICE, _BLOCK_DEVICE = 0o170000, 0o020000, 0o060000

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, k."""
Code = tuple[Instruction, ...]


def build_filter(*, network: Network, machine: str | None = None) -> bytes:
    """The filter as an array of `sock_filter`, to be built once and installed in each process by `install_filter`.

    `network` "none" allows AF_UNIX sockets only; "loopback" also allows TCP and UDP over IPv4 and IPv6, and needs an
    empty network namespace. `machine` is the `os.uname().machine` of another computer; None means this one. Raises
    ValueError for an unknown network or machine."""
    if network not in ("none", "loopback"):
        raise ValueError(f"network {network!r}: it must be 'none' or 'loopback'")
    machine = machine or os.uname().machine
    verdicts = syscall_verdicts(syscall_numbers(machine), network)
    # One balanced tree over runs of adjacent call numbers with the same answer takes about eight comparisons, and the
    # kernel caches calls that are always allowed.
    runs: list[tuple[int, Code]] = [(0, _refuse(errno.ENOSYS))]
    for number in range(max(verdicts) + 2):
        verdict = verdicts.get(number, _refuse(errno.ENOSYS))
        if verdict != runs[-1][1]:
            runs.append((number, verdict))
    code: list[Instruction] = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        code += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL_PROCESS)]
    code += _search_tree(runs if runs[0][0] != runs[1][0] else runs[1:])
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def install_filter(program: bytes) -> None:
    """Apply a filter irrevocably to the calling thread and its descendants. Call `set_no_new_privileges()` first,
    unless the process has CAP_SYS_ADMIN.

    Raises OSError: EACCES without no-new-privileges, EINVAL if the kernel has no filters.
    """
    call(*hold_filter(program).install)


class HeldFilter(NamedTuple):
    """A filter in memory, and the system call that applies it."""

    memory: object
    install: tuple[str, int, int, bytes]


@functools.lru_cache(maxsize=8)
def hold_filter(program: bytes) -> HeldFilter:
    """Put a filter into memory for `install_filter`. A process that forks others does this once for all of them."""
    memory = ctypes.create_string_buffer(program, len(program))
    request = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(memory))
    set_mode_filter, allow_speculation = 1, 1 << 2  # without the flag a mitigation slows down every call
    try:
        call(
            "seccomp", set_mode_filter, allow_speculation, 0
        )  # without a filter: EFAULT shows that the kernel has the flag
    except OSError as error:
        if error.errno == errno.EFAULT:
            return HeldFilter(memory, ("seccomp", set_mode_filter, allow_speculation, request))
    set_seccomp, mode_filter = 22, 2
    return HeldFilter(memory, ("prctl", set_seccomp, mode_filter, request))


def syscall_verdicts(numbers: dict[str, int], network: Network) -> dict[int, Code]:
    """Call number to filter code, which ends in a return, for one machine. Numbers that are left out are unknown."""
    verdicts: dict[str, Code] = {}
    for names, verdict in (
        (_ALLOWED, (_return(_ALLOW),)),
        (_DENIED, _refuse(errno.EPERM)),
        (_NO_ATTRIBUTES, _refuse(_EOPNOTSUPP)),
        (_PRETENDED, _refuse(0)),
    ):
        verdicts |= dict.fromkeys(names.split(), verdict)
    only_self = _argument_in(0, (0,), errno.EPERM)
    verdicts |= dict.fromkeys(
        ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"), only_self
    )
    verdicts |= {
        "setpriority": (*_skip_unless(0, (0,), errno.EPERM), *_argument_in(1, (0,), errno.EPERM)),
        "clone": (_load(0), (_JUMP_ANY_BIT, 0, 1, _FORBIDDEN_CLONE_FLAGS), *_refuse(errno.EPERM), _return(_ALLOW)),
        "ioctl": _argument_in(
            1, (*_TERMINAL_IOCTLS, *_FILE_IOCTLS, *(_INTERFACE_IOCTLS if network == "loopback" else ())), _ENOTTY
        ),
        "prctl": _prctl_code(),
        "mknod": _no_device(1),
        "mknodat": _no_device(2),
        "socketpair": _argument_in(0, (_AF_UNIX,), _EAFNOSUPPORT),
        "socket": _argument_in(0, (_AF_UNIX,), _EAFNOSUPPORT) if network == "none" else _internet_socket(),
    }
    return {numbers[name]: verdict for name, verdict in verdicts.items() if name in numbers}


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _refuse(code: int) -> Code:
    return (_return(_ERRNO | code),)


def _load(argument: int) -> Instruction:
    """Load the low half of an argument. The kernel ignores the other half of the `int` arguments tested here."""
    return (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * argument)


def _skip_unless(argument: int, values: Iterable[int], code: int) -> Code:
    """Refuse unless the argument is one of `values`; otherwise continue after this code."""
    tests = [(_JUMP_EQUAL, 0, 0, value) for value in values]
    to_next = [(op, len(tests) - index, 0, value) for index, (op, _, _, value) in enumerate(tests)]
    return (_load(argument), *to_next, *_refuse(code))


def _argument_in(argument: int, values: Iterable[int], code: int) -> Code:
    return (*_skip_unless(argument, values, code), _return(_ALLOW))


def _prctl_code() -> Code:
    """Allow the harmless options, and SIGKILL as the parent-death signal."""
    die_with_parent = ((_JUMP_EQUAL, 0, 3, _SET_DEATH_SIGNAL), _load(1), (_JUMP_EQUAL, 0, 1, _SIGKILL), _return(_ALLOW))
    return (_load(0), *die_with_parent, *_argument_in(0, _HARMLESS_PRCTLS, errno.EPERM))


def _no_device(argument: int) -> Code:
    kinds = ((_JUMP_EQUAL, 1, 0, _CHARACTER_DEVICE), (_JUMP_EQUAL, 0, 1, _BLOCK_DEVICE))
    return (_load(argument), (_AND, 0, 0, _FILE_TYPE_MASK), *kinds, *_refuse(errno.EPERM), _return(_ALLOW))


def _internet_socket() -> Code:
    """Allow AF_UNIX, and TCP and UDP over IPv4 and IPv6; refuse raw sockets and other protocols."""
    unix_or_internet = _skip_unless(0, (_AF_UNIX, _AF_INET, _AF_INET6), _EAFNOSUPPORT)
    unix = (_load(0), (_JUMP_EQUAL, 0, 1, _AF_UNIX), _return(_ALLOW))
    kind = (
        _load(1),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_JUMP_EQUAL, 2, 0, _SOCK_STREAM),
        (_JUMP_EQUAL, 1, 0, _SOCK_DGRAM),
    )
    protocol = _argument_in(2, (0, 6, 17), _EPROTONOSUPPORT)
    return (*unix_or_internet, *unix, *kind, *_refuse(errno.EPERM), *protocol)


def _search_tree(runs: list[tuple[int, Code]]) -> list[Instruction]:
    """Binary search for the call number in `(first number, code)` runs; each run's code occurs once."""
    if len(runs) == 1:
        return list(runs[0][1])
    middle = len(runs) // 2
    below, above = _search_tree(runs[:middle]), _search_tree(runs[middle:])
    first_above = runs[middle][0]
    if len(below) <= 255:
        return [(_JUMP_AT_LEAST, len(below), 0, first_above), *below, *above]
    return [(_JUMP_AT_LEAST, 0, 1, first_above), (_JUMP, 0, 0, len(below)), *below, *above]
