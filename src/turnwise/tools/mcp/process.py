"""The process of a stdio server: one JSON-RPC message per line on its input and output, with limits in both directions.

The SDK's own transport reads lines of any length and leaves a server running when this process is killed. This one ends
a server that floods, keeps the end of what it writes to stderr for error messages, and lets it die with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from turnwise.core.errors import EnvironmentFault
from turnwise.tools.mcp.sdk import format_message, parse_message
from turnwise.tools.mcp.servers import McpServer

MAX_LINE_BYTES = 16 * 2**20
"""Maximum length in bytes of a message from a server."""
MAX_GARBAGE_LINES = 1000
"""Maximum number of lines on a server's output that are not messages (a stray `print`); they are skipped, and more end
the session."""
STDERR_BYTES = 4000
"""Number of bytes kept from the end of stderr."""
STDERR_FREE_BYTES = 2**20
"""Bytes that a server may write to stderr before stderr is read slowly, so that a flooding server waits and not this
process."""
EXIT_S = 2.0
"""Seconds for a server to exit after its input was closed; then its process group is killed."""

_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Ask the kernel (Linux) for SIGKILL when the parent dies, then become the server. 1 is PR_SET_PDEATHSIG; if the parent
died before the request, the process has a different parent."""


@dataclass(slots=True, eq=False)
class ServerProcess:
    """A running server. `read` and `write` are the streams for the SDK's session."""

    process: asyncio.subprocess.Process
    label: str
    read: Any
    write: Any
    ended: asyncio.Future[None]
    """Receives an EnvironmentFault when the server exits, floods, or closes its output."""
    stderr: bytearray = field(default_factory=bytearray)
    """The end of the server's output to stderr."""

    def describe_end(self, what: str) -> EnvironmentFault:
        """Build the fault for a server that ended, with its exit status and the end of its stderr."""
        status = self.process.returncode
        if status is not None:
            what += f" (killed by signal {-status})" if status < 0 else f" (exit status {status})"
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        return EnvironmentFault(f"MCP server {self.label!r} {what}" + (f"; stderr: {lines[-1][:300]}" if lines else ""))


@asynccontextmanager
async def open_process(server: McpServer, label: str) -> AsyncIterator[ServerProcess]:
    """Start the server; at the end close its input, and kill its process group if it has not exited in `EXIT_S`.

    Raises ConfigError as `McpServer` does, EnvironmentFault when the process cannot be started.
    """
    import anyio

    command, environment = _command(server.find_program(), server.args), _environment(server)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=server.cwd or None,
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )
    except (OSError, ValueError) as cause:
        raise EnvironmentFault(f"cannot start MCP server {label!r}: {cause}") from cause
    incoming, read = anyio.create_memory_object_stream[Any](0)
    write, outgoing = anyio.create_memory_object_stream[Any](0)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    running = ServerProcess(process=process, label=label, read=read, write=write, ended=ended)
    errors = asyncio.ensure_future(_keep_stderr(running))
    tasks = [
        asyncio.ensure_future(_receive(running, incoming, errors)),
        asyncio.ensure_future(_send(process, outgoing)),
    ]
    try:
        yield running
    finally:
        for task in (*tasks, errors):
            task.cancel()
        await asyncio.wait({*tasks, errors}, timeout=EXIT_S)
        await _stop(process)
        for stream in (incoming, read, write, outgoing):
            stream.close()
        if ended.done():
            ended.exception()  # read, so that asyncio does not log it
        ended.cancel()


def _command(program: str, arguments: Sequence[str]) -> list[str]:
    if sys.platform != "linux":
        return [program, *arguments]
    # -I and -S skip the user's site packages: the step costs some 15 ms.
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), program, *arguments]


def _environment(server: McpServer) -> Mapping[str, str]:
    return {"PYTHONUNBUFFERED": "1", **server.build_env()}


async def _receive(running: ServerProcess, incoming: Any, errors: asyncio.Future[None]) -> None:
    """Pass every message to the session until the server's output ends; then report how it ended."""
    stdout = running.process.stdout
    assert stdout is not None
    garbage, example = 0, b""
    what = "closed its output"
    while True:
        try:
            line = await _read_line(running.process, stdout)
        except ValueError:
            what = f"sent a line of more than {MAX_LINE_BYTES // 2**20} MiB; let its tools return less"
            break
        if not line:
            break
        if not line.strip():
            continue
        try:
            message = parse_message(line)
        except ValueError:
            garbage, example = garbage + 1, example or line
            if garbage > MAX_GARBAGE_LINES:
                what = f"writes what is no JSON-RPC message to its output, first {example[:100]!r}; log to stderr"
                break
            await asyncio.sleep(0)  # readline does not wait while lines are buffered
            continue
        try:
            await incoming.send(message)
        except _closed_stream():
            return
    if what == "closed its output":
        # If it has exited, its exit status and last output follow at once.
        with contextlib.suppress(TimeoutError):
            if running.process.returncode is None:
                await asyncio.wait_for(running.process.wait(), EXIT_S)
            await asyncio.wait({errors}, timeout=EXIT_S)
        if running.process.returncode is not None:
            what = "exited"
    if garbage and garbage <= MAX_GARBAGE_LINES:
        what += f" after output that is no JSON-RPC message, first {example[:100]!r}"
    if not running.ended.done():
        running.ended.set_exception(running.describe_end(what))
    incoming.close()


async def _read_line(process: asyncio.subprocess.Process, stdout: asyncio.StreamReader) -> bytes:
    """Return the next line; empty at the end of the output. After the server has exited, if a child of it keeps the
    output open, the output counts as ended once nothing was written for `EXIT_S`. Raises ValueError for a line that is
    too long."""
    reading = asyncio.ensure_future(stdout.readline())
    try:
        while not (await asyncio.wait({reading}, timeout=EXIT_S))[0]:
            if process.returncode is not None:
                return b""
        return reading.result()
    finally:
        reading.cancel()


async def _send(process: asyncio.subprocess.Process, outgoing: Any) -> None:
    """Write the session's messages. Ends silently when the server ends, which `_receive` reports."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, *_closed_stream()):
        async for message in outgoing:
            process.stdin.write(format_message(message))
            await process.stdin.drain()


def _closed_stream() -> tuple[type[Exception], ...]:
    import anyio

    return anyio.ClosedResourceError, anyio.BrokenResourceError


async def _keep_stderr(running: ServerProcess) -> None:
    stderr = running.process.stderr
    assert stderr is not None
    total = 0
    while chunk := await stderr.read(2**16):
        total += len(chunk)
        running.stderr += chunk
        del running.stderr[:-STDERR_BYTES]
        await asyncio.sleep(0.05 if total > STDERR_FREE_BYTES else 0)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Close the input, wait, kill what is left of the process group, and read the rest so that the pipes close."""
    assert process.stdin is not None
    process.stdin.close()
    rest = asyncio.gather(_drain(process.stdout), _drain(process.stderr))  # a server that is writing cannot exit
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), EXIT_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # its remaining children too
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(process.wait(), rest), EXIT_S)


async def _drain(pipe: asyncio.StreamReader | None) -> None:
    while pipe is not None and await pipe.read(2**16):
        await asyncio.sleep(0)
