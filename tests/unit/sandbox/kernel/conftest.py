"""Running an attempt in a child process, since walls once put up stay."""

import errno
import json
import os
import select
import signal
from collections.abc import Callable
from typing import Any

import pytest

from turnwise.core.errors import SandboxError
from turnwise.sandbox.kernel import syscalls

Attempt = Callable[[], Any]


def run_in_child(attempt: Attempt, *, flags: int = 0, timeout_s: float = 20.0) -> Any:
    """What `attempt` returns (JSON), the name of the errno it raises, the text of a SandboxError, or "signal N" / "exit N"."""
    reader, writer = os.pipe()
    with syscalls.undisturbed():  # a test process has threads
        pid, pidfd = syscalls.clone_process(flags, pidfd=True)
    if pid == 0:
        try:
            os.setsid()
            try:
                answer = attempt()
            except OSError as error:
                answer = errno.errorcode.get(error.errno, str(error.errno))
            except (SandboxError, ValueError, MemoryError) as error:
                answer = f"{type(error).__name__}: {error}"
            os.write(writer, json.dumps(answer).encode())
        finally:
            os._exit(7)
    os.close(writer)
    if not select.select([pidfd], [], [], timeout_s)[0]:  # its end, not the pipe's: processes it leaves behind hold that open
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
