"""The types of every sandbox: programs, sessions, limits and executions, and the protocols that backends implement.

A `Program` is one execution in a fresh place and leaves nothing behind. A `Session` keeps its variables (Python) or
shell state (bash) and its files until it is closed. Both answer with an `Execution`. Its exit status, limit and times
can be trusted; everything that the code printed or wrote cannot."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from turnwise_sandbox.trees import Tree

Limit = Literal["wall", "cpu", "memory", "output", "pids", "disk"]
"""Which of the `Limits` an execution hit."""

Profile = Literal["auto", "std", "numpy", "numpy_random", "sympy", "openai", "pytest"]
"""The preloaded interpreter that runs the code. "auto" chooses by the code's import lines, and for numpy by whether the
code contains "random". All profiles can import the same packages; a package that is not preloaded is imported again in
each execution, which takes time."""

Network = Literal["none", "loopback"]
"""The sockets of a program: "none" allows AF_UNIX only, "loopback" also the loopback interface of a network namespace
of its own."""

Mode = Literal["slot", "strict"]
"""How one-shot programs are isolated from each other. "slot" runs programs one after the other in one set of namespaces
and wipes it in between, which is fastest; "strict" makes new namespaces for each program. Each session has its own."""


TreeMethod = Literal["overlay", "copy"]
"""How a program gets its tree: "overlay" puts an empty folder in memory on top of the layers, "copy" copies them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits for one execution. The kernel or the supervisor enforces each limit, never the code itself."""

    wall_s: float = 5.0
    """Seconds of real time."""
    cpu_s: int | None = None
    """Seconds of processor time per process; None means one second more than `wall_s`."""
    memory_bytes: int = 1 << 30
    """Memory of all processes together if a cgroup is available, else of each process."""
    output_bytes: int = 1 << 20
    """Maximum bytes of stdout, and the same of stderr."""
    num_pids: int = 64
    """Processes and threads at the same time."""
    disk_bytes: int = 64 << 20
    """Bytes of all files together if the level has a scratch file system, else of each file. Files of a tree that the
    program did not change are not counted."""
    num_files: int = 4096
    """Number of files and folders, counted in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One execution in a fresh place."""

    code: str | bytes
    """Source text. Bytes that are not valid UTF-8 make Python raise SyntaxError inside the sandbox."""
    language: Literal["python", "bash"] = "python"
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Relative path to content of each file that is written before the code starts."""
    outputs: tuple[str, ...] = ()
    """Relative paths of files to return after the code ended; missing files are left out."""
    seed: int = 0
    """Seeds `random`, numpy's legacy generator, `numpy.random.default_rng()`, `uuid` and `os.urandom` as far as the
    backend can: the same program with the same seed gives the same output, and another seed gives another."""
    profile: Profile = "auto"
    network: Network = "none"
    tree: Tree | None = None
    """The layers of the program's working folder, with `files` as a last layer on top; None for a folder with only
    `files`. HOME and TMPDIR are elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How an execution ended."""

    stdout: bytes
    """Output of the code to stdout, cut at `Limits.output_bytes`."""
    stderr: bytes
    """The same for standard error."""
    exit_code: int | None
    """The process's exit status; None if a signal or the supervisor ended it. In a live session 0, or 1 after an
    exception."""
    signal: int | None = None
    """The signal that ended the process; None if it ended otherwise or the supervisor killed it."""
    limit: Limit | None = None
    """The limit that was hit; None if none was. "wall" and "output" are certain; "memory", "pids" and "disk" are read
    from the kernel's counters where they exist, else from how the program failed."""
    value: str | None = None
    """In live Python sessions, `repr` of the last expression; None if the code ends otherwise or the value is None."""
    error: str | None = None
    """In live Python sessions, the traceback's last line, for example "NameError: name 'x' is not defined"; None
    without an exception."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Path to content of each of the program's `outputs` that exists."""
    stdout_dropped: int = 0
    """Bytes beyond the limit that were read and dropped."""
    stderr_dropped: int = 0
    """The same for standard error."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    changes: Mapping[str, bytes | None] | None = None
    """What the program wrote into its tree: path to content of each new or changed file, and None for each removed
    file. Links and special files are left out, and neither modes nor empty folders are reported. None without a tree,
    and if the changed files hold more than `Limits.disk_bytes`, where `limit` is "disk"."""
    level: str = "none"
    """The isolation level at which the code ran."""

    @property
    def ok(self) -> bool:
        """Whether the code ended by itself with status 0."""
        return self.exit_code == 0 and self.limit is None

    def text(self, *, marker: str = "\n[{dropped} bytes of output dropped]") -> str:
        """stdout, then stderr, as text. Invalid UTF-8 is replaced, and a marker follows a stream that was cut, where a
        character that the cut divides is left out."""
        parts = []
        for stream, dropped in ((self.stdout, self.stdout_dropped), (self.stderr, self.stderr_dropped)):
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(stream, final=not dropped)
            parts.append(text + (marker.format(dropped=dropped) if dropped else ""))
        return "".join(parts)


class Session(Protocol):
    """A live interpreter or shell. One execution at a time."""

    async def run(self, code: str, *, timeout_s: float | None = None) -> Execution:
        """Run `code` and wait for its end. After `timeout_s` seconds (None means the session's `wall_s`) it is
        interrupted, which keeps the session's state. Code that ignores the interrupt is killed, which ends the session.
        Raises SandboxError when the session has ended."""
        ...

    async def fork(self) -> Session:
        """Copy the live session with its variables and files; both continue independently. Raises SandboxError if the
        backend or the language does not support it."""
        ...

    async def write_file(self, path: str, content: bytes) -> None:
        """Write a file below the session's folder. Raises SandboxError for a path outside it or a full quota."""
        ...

    async def read_file(self, path: str, *, max_bytes: int = 16 << 20) -> bytes:
        """Read a file below the session's folder. Raises SandboxError if it is missing, too large, not a plain file, or
        outside the folder."""
        ...

    async def changes(self) -> dict[str, bytes | None]:
        """What the session wrote into its tree so far, as in `Execution.changes`; also after its process has ended.
        Raises SandboxError without a tree, and if the changed files hold more than the limits allow."""
        ...

    async def reset(self) -> None:
        """Start again as right after `open`: every edit, process and variable of the session is gone, and a session
        that has ended works again. Its branches continue. Raises SandboxError without a tree."""
        ...

    async def close(self) -> None:
        """End the session and everything it started. A second call does nothing."""
        ...


class Sandbox(Protocol):
    """Runs untrusted code."""

    async def run(self, program: Program, limits: Limits = ...) -> Execution:
        """Run one program, as soon as a slot is free. Cancelling the task ends the program.

        What the program does wrong is in the `Execution`. Raises SandboxError when the sandbox itself fails.
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
        tree: Tree | None = None,
    ) -> Session:
        """Start a live session, which works in a merged `tree` if one is given. Raises SandboxError when the sandbox
        fails, has no sessions or cannot lay the tree."""
        ...

    async def close(self) -> None:
        """End every program and session. A second call does nothing."""
        ...
