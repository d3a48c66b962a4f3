"""What starts a program of ours somewhere and lets us speak with it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that speaks over a socket: it is called with the socket's number and the process id of its parent after
    `arguments`, and ends with that parent."""

    name: str
    """What errors call it."""
    arguments: tuple[str, ...]
    """The interpreter and what it runs, as they are called where the program runs."""
    environment: Mapping[str, str]
    """Laid over what `inherits` of the environment there."""
    inherits: tuple[str, ...] | None = None
    """Variables that the program sees of its parent's environment; None are all."""
    log: Path
    """A file here, or of this name on another machine, for what the program prints."""


def import_path() -> dict[str, str]:
    """The variable by which a program imports what this process does, such as a module beside the script that runs."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


class RunningProcess(Protocol):
    """A process that was started, whatever started it."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process id where it runs; None before it runs."""
        ...

    @property
    def exitcode(self) -> int | None:
        """Its exit status, minus the signal that ended it; None while it runs, and where that is unknown."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def join(self, timeout: float) -> None:
        """Wait for its end, at most `timeout` seconds."""
        ...


class RunningProgram(RunningProcess, Protocol):
    """A `Program` that was started."""

    @property
    def address(self) -> str:
        """Where other programs of its host reach one that listens beside it; loopback on this machine."""
        ...

    def read_log(self) -> str:
        """The end of what it printed, as far as that is known here."""
        ...

    async def carry(self, folder: Path) -> Path:
        """Where the program finds what `folder` holds: there itself on this machine. Raises EngineError."""
        ...


class Host(Protocol):
    """Somewhere to run programs."""

    async def start(self, program: Program) -> tuple[RunningProgram, socket.socket]:
        """Start a program, and our end of the socket to it. The loop that runs this keeps it going.

        Raises EngineError naming why it cannot start."""
        ...

    def close(self) -> None:
        """Leave what programs ran on, after they have ended."""
        ...
