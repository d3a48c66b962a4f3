"""Runs an attempt in a child process, since restrictions are irrevocable."""

import errno
import json
import os
import select
import signal
from collections.abc import Callable
from typing import Any

import pytest

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.kernel import syscalls

Attempt = Callable[[], Any]


def clone(flags: int) -> int:
    """Clone this process through `os.fork`, which repairs Python's locks in a process with threads; a raw clone does
    not."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            pid = syscalls.clone_process(flags | syscalls.CLONE_PARENT)
        except OSError as error:
            pid = -(error.errno or errno.EPERM)
        if pid == 0:
            return 0
        os.write(writer, str(pid).encode())
        os._exit(0)
    os.waitpid(between, 0)
    pid = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)
    if pid < 0:
        raise OSError(-pid, f"clone: {os.strerror(-pid)}")
    return pid


def run_in_child(attempt: Attempt, *, flags: int = 0, timeout_s: float = 120.0) -> Any:
    """The result of `attempt` in a child: its value (as JSON), the name of the errno or the text of the error that it
    raises, or "signal N" or "exit N"."""
    reader, writer = os.pipe()
    pid = clone(flags)
    if pid == 0:
        try:
            os.setsid()
            try:
                answer = attempt()
            except OSError as error:
                answer = errno.errorcode.get(error.errno or 0, str(error.errno))
            except (SandboxError, ValueError, MemoryError) as error:
                answer = f"{type(error).__name__}: {error}"
            os.write(writer, json.dumps(answer).encode())
        finally:
            os._exit(7)
    os.close(writer)
    pidfd = os.pidfd_open(pid)
    if not select.select([pidfd], [], [], timeout_s)[
        0
    ]:  # its end, not the pipe's: processes it leaves behind hold that open
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    text = b""
    if select.select([reader], [], [], 0)[0]:
        text = os.read(reader, 1 << 16)
    os.close(reader)
    os.close(pidfd)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return json.loads(text) if text else f"signal {-status}" if status < 0 else f"exit {status}"


@pytest.fixture
def in_child() -> Callable[..., Any]:
    return run_in_child


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("takes root: without it the attempt fails even with the layer off")
