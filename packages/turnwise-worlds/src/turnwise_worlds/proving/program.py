"""A program in a cell of the sandbox, spoken to over a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.core.errors import TurnwiseError
from turnwise.environments.shared_sandbox import SharedSandbox
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limit, Limits, Program
from turnwise_worlds.proving.prover import ProverLost

START = """
import os
os.environ.update({variables!r}, HOME=os.getcwd())
for descriptor in (0, 1, 2):
    os.dup2(4, descriptor)
os.execvp({command[0]!r}, {command!r})
"""
"""Turns the sandbox's interpreter into the program, whose streams are the channel to this process."""
LIFE_S = 3600.0
"""Seconds after which the sandbox ends a program."""
END_S = 20.0
"""Seconds that the sandbox may take to begin, and to say how a program ended."""
LONGEST_OUTPUT = 1 << 18
"""Bytes of the answers to one request."""


class ProgramEnded(Exception):
    """Raised when a program has ended, or was ended for what it did."""

    def __init__(self, limit: Limit | None) -> None:
        super().__init__(f"the program ended (limit: {limit or 'none'})")
        self.limit: Limit | None = limit
        """The limit that it hit: "wall" for a request, "output" for its answers, "memory", or None: it just ended."""


class TalkingProgram:
    """One program, for one caller at a time. Its two streams of output are one."""

    def __init__(
        self,
        sandbox: SharedSandbox,
        command: Sequence[str],
        *,
        memory_bytes: int,
        num_pids: int,
        variables: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        visible: Sequence[Path] = (),
    ) -> None:
        """Start it in a folder of `files`; `visible` are folders of this machine that it may read besides the
        system's."""
        code = START.format(command=list(command), variables=dict(variables or {}))
        tree = Tree(layers=({},), visible=tuple(visible)) if visible else None
        program = Program(code=code, files=dict(files or {}), profile="std", tree=tree)
        limits = Limits(wall_s=LIFE_S, memory_bytes=memory_bytes, num_pids=num_pids)
        self._received = 0
        self._channel, theirs = socket.socketpair()
        self._cell = _Cell(sandbox, program, limits, theirs)

    def send(self, text: str, deadline: float) -> None:
        """Send text. `deadline` is a time of `time.monotonic`. Raises ProgramEnded."""
        self._received = 0
        self._channel.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            self._channel.sendall(text.encode())
        except TimeoutError:
            raise self.end("wall") from None
        except OSError:
            raise self.end(None) from None

    def receive(self, deadline: float) -> bytes:
        """Wait for more of what it says. Raises ProgramEnded, too if it says too much."""
        self._channel.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            received = self._channel.recv(1 << 16)
        except TimeoutError:
            raise self.end("wall") from None
        except OSError:
            received = b""
        if not received:
            raise self.end(None)
        self._received += len(received)
        if self._received > LONGEST_OUTPUT:
            raise self.end("output")
        return received

    def end(self, limit: Limit | None) -> ProgramEnded:
        """End the program, and return the exception that says why: `limit`, or what the sandbox says of its end."""
        if limit is None:
            limit = self._cell.wait_for_limit()
        self.close()
        return ProgramEnded(limit)

    def close(self) -> None:
        """End the program. A second call does nothing."""
        self._channel.close()
        self._cell.cancel()


class _Cell:
    """The cell of one program: a thread with the event loop on which the sandbox reports its end."""

    def __init__(self, sandbox: SharedSandbox, program: Program, limits: Limits, channel: socket.socket) -> None:
        self._execution: Execution | None = None
        self._error: TurnwiseError | None = None
        self._started = threading.Event()
        self._over = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[Execution] | None = None
        work = self._play(sandbox, program, limits, channel)
        thread = threading.Thread(target=self._serve, args=(work,), name="turnwise-prover", daemon=True)
        thread.start()
        self._started.wait(END_S)

    def _serve(self, work: object) -> None:
        try:
            self._loop.run_until_complete(work)  # type: ignore[arg-type]
        except asyncio.CancelledError:
            pass
        except TurnwiseError as error:
            self._error = error
        finally:
            self._started.set()
            self._over.set()
            self._loop.close()

    async def _play(self, sandbox: SharedSandbox, program: Program, limits: Limits, channel: socket.socket) -> None:
        self._task = asyncio.ensure_future(sandbox.run_beside(program, limits, channel))
        self._started.set()
        self._execution = await self._task

    def wait_for_limit(self) -> Limit | None:
        """Return the limit that ended the program; None if none did. Raises ProverLost if the sandbox failed or says
        nothing."""
        if not self._over.wait(END_S):
            raise ProverLost(f"the sandbox did not say within {END_S:g} s how a prover ended")
        if self._error is not None:
            raise ProverLost(f"the prover's cell of the sandbox failed: {self._error}") from self._error
        return None if self._execution is None else self._execution.limit

    def cancel(self) -> None:
        """End the program."""
        if self._task is not None and not self._over.is_set():
            try:
                self._loop.call_soon_threadsafe(self._task.cancel)
            except RuntimeError:
                return  # the loop closed in between: the program has ended
