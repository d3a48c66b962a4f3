"""What a sandbox is asked and what it answers. Knows nothing about how code is isolated.

A `Program` is one execution in a fresh place: nothing is left of it afterwards. A `Session` lives across turns of one
trajectory: its variables (Python) or shell state (bash) and its files persist until it is closed. Both answer with an
`Execution`. Everything an execution prints or writes is untrusted; the exit status, the limits hit and the times are
not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Limit = Literal["wall", "cpu", "memory", "output", "pids", "disk"]
"""What an execution ran into."""

Profile = Literal["auto", "std", "numpy", "numpy_random", "sympy", "pytest"]
"""Which preloaded interpreter runs the code; "auto" reads the code's imports, and for numpy whether it speaks of
"random". All can import the same packages; a package that is not preloaded is imported anew in each execution, which
costs time."""

Network = Literal["none", "loopback"]
"""No socket but AF_UNIX, or the loopback interface of a network namespace of its own."""

Mode = Literal["slot", "strict"]
"""How one-shot programs are isolated from each other: a namespace set per slot that is wiped between programs
(fastest), or a fresh namespace set per program. Sessions always have their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one execution may use. All are enforced by the kernel or the supervisor, never by the code itself."""

    wall_s: float = 5.0
    """Seconds of real time."""
    cpu_s: int | None = None
    """Seconds of processor time per process; None allows one second more than `wall_s`."""
    memory_bytes: int = 1 << 30
    """All processes together where a cgroup can be had, else each process."""
    output_bytes: int = 1 << 20
    """stdout and stderr, each."""
    num_pids: int = 64
    """Processes and threads at one time."""
    disk_bytes: int = 64 << 20
    """Written files together (where the level has a scratch file system of its own, else each file)."""
    num_files: int = 4096
    """Files and folders together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One execution from nothing."""

    code: str | bytes
    """Source text. Bytes need not be valid UTF-8; Python then says so as a SyntaxError."""
    language: Literal["python", "bash"] = "python"
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Relative paths to contents, written before the code starts."""
    outputs: tuple[str, ...] = ()
    """Relative paths to hand back after the code ended; missing ones are left out."""
    seed: int = 0
    """Seeds `random`, numpy's legacy generator, `numpy.random.default_rng()`, `uuid` and `os.urandom`-backed defaults
    where they can be reached: the same program with the same seed gives the same output, two seeds differ."""
    profile: Profile = "auto"
    network: Network = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How an execution ended."""

    stdout: bytes
    """What was printed, cut at `Limits.output_bytes`."""
    stderr: bytes
    exit_code: int | None
    """The process's exit status; None when a signal or the supervisor ended it. In a live session 0, or 1 after an
    exception."""
    signal: int | None = None
    """The signal that ended the process, where it was not the supervisor's doing."""
    limit: Limit | None = None
    """The limit that was hit, None when there was none. "wall" and "output" are certain; "memory", "pids" and "disk"
    are read from the kernel's counters where there are some, else from how the program failed."""
    value: str | None = None
    """Live Python sessions: `repr` of the last expression; None when the code did not end with one, or it was None."""
    error: str | None = None
    """Live Python sessions: the traceback's last line, for example "NameError: name 'x' is not defined"."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The `outputs` that were asked for and exist."""
    stdout_dropped: int = 0
    """Bytes seen beyond the limit and dropped."""
    stderr_dropped: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    level: str = "none"
    """The isolation level the execution ran at."""

    @property
    def ok(self) -> bool:
        """It ended by itself with status 0."""
        return self.exit_code == 0 and self.limit is None

    def text(self, *, marker: str = "\n[{dropped} bytes of output dropped]") -> str:
        """stdout, then stderr, as text (invalid UTF-8 replaced), each with a marker where something was dropped."""
        parts = []
        for stream, dropped in ((self.stdout, self.stdout_dropped), (self.stderr, self.stderr_dropped)):
            parts.append(stream.decode("utf-8", "replace") + (marker.format(dropped=dropped) if dropped else ""))
        return "".join(parts)


class Session(Protocol):
    """A live interpreter or shell. One execution at a time."""

    async def run(self, code: str, *, timeout_s: float | None = None) -> Execution:
        """Run `code` and wait. Past `timeout_s` (None: the session's `wall_s`) it is interrupted, keeping its state;
        code that ignores the interrupt is killed, and the session is over. Raises SandboxError when the session is
        over."""
        ...

    async def fork(self) -> Session:
        """A copy of the live session, variables and files; both go on independently. Raises SandboxError where the
        backend or the language cannot."""
        ...

    async def write_file(self, path: str, content: bytes) -> None:
        """Write below the session's folder. Raises SandboxError for a path that leaves it or a full quota."""
        ...

    async def read_file(self, path: str, *, max_bytes: int = 16 << 20) -> bytes:
        """Read below the session's folder. Raises SandboxError when it is missing, too large, no plain file, or leaves
        it."""
        ...

    async def close(self) -> None:
        """End it and everything it started. Safe to call twice."""
        ...


class Sandbox(Protocol):
    """Runs code that is not trusted."""

    async def run(self, program: Program, limits: Limits = ...) -> Execution:
        """Run one program. Waits for a free place (back-pressure). Cancelling the task ends the program.

        What the program does wrong is in the `Execution`; SandboxError means that the sandbox itself failed.
        """
        ...

    async def open(
        self,
        language: Literal["python", "bash"] = "python",
        *,
        limits: Limits = ...,
        seed: int = 0,
        profile: Profile = "std",
        network: Network = "none",
    ) -> Session:
        """Start a live session."""
        ...

    async def close(self) -> None:
        """End everything. Safe to call twice."""
        ...
