"""Resource limits of a process. They apply to each process, and to the processes of a user for their number; totals
need a cgroup or a tmpfs of limited size."""

from __future__ import annotations

import resource
import struct

from turnwise_sandbox.kernel.syscalls import syscall

UNLIMITED = resource.RLIM_INFINITY
_RLIMIT_NICE, _RLIMIT_RTPRIO = 13, 14  # not named by the standard library; the same on x86_64 and aarch64


def apply_rlimits(
    *,
    cpu_s: int | None = None,
    address_bytes: int | None = None,
    data_bytes: int | None = None,
    num_pids: int | None = None,
    file_bytes: int | None = None,
    open_files: int | None = None,
    stack_bytes: int | None = None,
    core_bytes: int = 0,
) -> None:
    """Lower the soft and hard limits of the calling process. None leaves a limit unchanged; no limit is raised.

    After `cpu_s` processor seconds the process gets SIGXCPU, one second later SIGKILL. `num_pids` bounds the threads of
    the real user id in its user namespace, except those of the machine's root. `address_bytes` also counts reserved
    memory, of which each thread has 64 MiB or more, so keep it at 4 GiB or above and use `data_bytes` as the bound.
    Real-time scheduling, raised priority, message queues and locked memory are always limited to 0."""
    wanted = (
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_AS, address_bytes),
        (resource.RLIMIT_DATA, data_bytes),
        (resource.RLIMIT_NPROC, num_pids),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_STACK, stack_bytes),
        (resource.RLIMIT_CORE, core_bytes),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (_RLIMIT_NICE, 0),
        (_RLIMIT_RTPRIO, 0),
    )
    for which, amount in wanted:
        if amount is not None:
            _lower(which, amount, grace=1 if which == resource.RLIMIT_CPU else 0)


def _lower(which: int, amount: int, grace: int) -> None:
    _, hard_now = resource.getrlimit(which)
    hard = amount + grace if hard_now == UNLIMITED else min(amount + grace, hard_now)
    syscall("setrlimit", which, struct.pack("LL", min(amount, hard), hard))
