"""Protocols for starting a program of ours somewhere and communicating with it."""

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
    """A program that communicates over a socket: it is called with the socket's number and its parent's process id
    after `arguments`, and ends with that parent."""

    name: str
    """Name for errors."""
    arguments: tuple[str, ...]
    """The command line: the interpreter and its arguments, as valid on the machine where the program runs."""
    environment: Mapping[str, str]
    """Variables that override the part of the environment there that `inherits` selects."""
    inherits: tuple[str, ...] | None = None
    """Variables of its parent's environment that the program sees; None: all."""
    log: Path
    """A file for the program's output, here or under this name on another machine."""


def import_path() -> dict[str, str]:
    """Return the variable that lets a program import what this process can import, such as a module beside the
    script."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


class RunningProcess(Protocol):
    """A process that was started, by whatever means."""

    @property
    def name(self) -> str:
        """Name for errors."""
        ...

    @property
    def pid(self) -> int | None:
        """Its process id on its machine; None before it runs."""
        ...

    @property
    def exitcode(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs, and if unknown."""
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
        """Address at which other programs on its host reach a program that listens beside it; loopback on this
        machine."""
        ...

    def read_log(self) -> str:
        """Return the end of its output, as far as it is known here."""
        ...

    async def carry(self, folder: Path) -> Path:
        """Return where the program finds the contents of `folder`: the folder itself on this machine. Raises
        EngineError."""
        ...


class Host(Protocol):
    """A place to run programs."""

    async def start(self, program: Program) -> tuple[RunningProgram, socket.socket]:
        """Start a program; returns it and our end of the socket to it. The loop that runs this serves the connection.

        Raises EngineError naming why it cannot start."""
        ...

    def close(self) -> None:
        """Leave the place where programs ran, after they have ended."""
        ...
