"""Programs as children of this process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.errors import EngineError, boundary
from turnwise.hosts.host import Program

LOOPBACK = "127.0.0.1"
NUM_LOG_LINES = 12
"""Number of log lines that an error shows."""


@dataclass(frozen=True, slots=True)
class Child:
    """Implements `RunningProgram`."""

    name: str
    running: subprocess.Popen[bytes]
    log: Path
    address: str = LOOPBACK

    @property
    def pid(self) -> int:
        """See `RunningProgram.pid`."""
        return self.running.pid

    @property
    def exitcode(self) -> int | None:
        """See `RunningProgram.exitcode`."""
        return self.running.poll()

    def kill(self) -> None:
        """See `RunningProgram.kill`."""
        self.running.kill()

    def join(self, timeout: float) -> None:
        """See `RunningProgram.join`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.running.wait(timeout)

    def read_log(self) -> str:
        """See `RunningProgram.read_log`."""
        return read_log(self.log)

    async def carry(self, folder: Path) -> Path:
        """See `RunningProgram.carry`."""
        return folder


class LocalHost:
    """Implements `Host`. A program lives no longer than the thread that started it."""

    async def start(self, program: Program) -> tuple[Child, socket.socket]:
        """See `Host.start`."""
        with boundary(EngineError, f"{program.name} cannot be started"):
            running, end = spawn(program.arguments, environment=merge_environment(program), log=program.log)
        return Child(program.name, running, program.log), end

    def close(self) -> None:
        """See `Host.close`."""


def spawn(
    arguments: Sequence[str], *, environment: Mapping[str, str], log: Path
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a program with one end of a socket; returns the process and the other end. Raises OSError."""
    ours, theirs = socket.socketpair()
    try:
        with contextlib.closing(theirs), log.open("ab") as output:
            running = subprocess.Popen(
                [*arguments, str(theirs.fileno()), str(os.getpid())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
            )
    except BaseException:
        ours.close()
        raise
    return running, ours


def merge_environment(program: Program) -> dict[str, str]:
    """Return the variables that a program sees as a child of this process."""
    names = os.environ if program.inherits is None else program.inherits
    return {name: os.environ[name] for name in names if name in os.environ} | dict(program.environment)


def read_log(log: Path) -> str:
    """Return the last lines of a file; empty if it cannot be read."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-NUM_LOG_LINES:])
    except OSError:
        return ""
