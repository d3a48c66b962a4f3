"""Resource limits of a process. Per process (but for the count of processes, which is per user): totals need a cgroup
or a sized tmpfs."""

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
    """Lower the limits of the calling process, soft and hard; None leaves one as it is, and none is ever raised.

    `cpu_s`: SIGXCPU after so many CPU seconds, SIGKILL one later. `num_pids` counts threads of the real user id in its
    user namespace and does not bind root of the machine. `address_bytes` also counts memory that is only reserved
    (every thread reserves 64 MiB and more): keep it at 4 GiB or above and bound with `data_bytes`. Real-time
    scheduling, raised priority, message queues and locked memory are always limited to nothing."""
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
