"""Runs an agent's program, and all that it runs, inside the sandbox, where the gateway is all that it reaches.

The program has a network namespace of its own. It listens there before any of its code runs (`guest.endpoint`) and
passes the listening socket out; what connects to it is passed on to the endpoint of the episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from turnwise.core.episodes import Endpoint
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.types import Task
from turnwise.environments.agents.command import describe_failure, describe_task, name_endpoint
from turnwise.environments.shared_sandbox import SharedSandbox
from turnwise_sandbox.guest.endpoint import HOST, PORT
from turnwise_sandbox.requests import choose_profile
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limits, Program

REQUIRED = ("net", "fs_read", "fs_write", "signals", "ptrace", "kill_tree")
"""Properties without which no agent's program starts."""
CHUNK_BYTES = 1 << 16
_START = "from turnwise_sandbox.guest.endpoint import start\nstart({environment!r}, {arguments!r}, {source!r})\n"


class SandboxedCommand:
    """A program that plays tasks inside the sandbox."""

    def __init__(self, sandbox: SharedSandbox, command: Sequence[str], limits: Limits) -> None:
        """`python FILE ARGUMENT...` runs a file of the host in a preloaded interpreter; any other command must exist
        inside the sandbox, which shows the system's programs and this interpreter's. Raises ConfigError for a file that
        cannot be read."""
        self._sandbox, self._limits = sandbox, limits
        self._arguments, self._source = list(command), None
        if len(command) > 1 and Path(command[0]).name in ("python", "python3") and command[1].endswith(".py"):
            self._arguments = list(command[1:])
            try:
                self._source = Path(command[1]).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as cause:
                raise ConfigError(f"environment.args.command: {command[1]!r} cannot be read: {cause}") from None

    async def play(self, task: Task, endpoint: Endpoint) -> str:
        """Run the program in a folder with the task's files (`payload["files"]`), the task's id and prompt as JSON on
        its standard input; returns what it printed. Nothing else of the payload is shown, since the answer may be in
        it, and no reward may be posted, since the model's commands could do so.

        Raises EnvironmentFault if the program fails or hits a limit, SandboxError if the sandbox fails."""
        endpoint.refuse_rewards()
        path = urlsplit(endpoint.url).path
        variables = name_endpoint(replace(endpoint, url=f"http://{HOST}:{PORT}{path}"))
        code = _START.format(environment=variables, arguments=self._arguments, source=self._source)
        program = Program(
            code=code,
            stdin=describe_task(task, with_payload=False),
            profile=choose_profile(Program(code=self._source or "")),
            network="loopback",
            tree=Tree(layers=(read_files(task),)),
        )
        ours, theirs = socket.socketpair()
        with ours:
            run = asyncio.ensure_future(self._sandbox.run_beside(program, self._limits, theirs))
            try:
                async with _pass_on(ours, run, endpoint):
                    execution = await run
            finally:
                run.cancel()
        if not execution.ok:
            raise EnvironmentFault(_describe_end(self._arguments[0], execution))
        return execution.stdout.decode(errors="replace").strip()


def read_files(task: Task) -> Mapping[str, bytes]:
    """Return the files that a task brings. Raises EnvironmentFault if they are not texts by path."""
    files = task.payload.get("files", {})
    if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in files.values()):
        raise EnvironmentFault(f"the payload's files of task {task.id} must be a table of texts by path")
    return {str(path): text.encode() for path, text in files.items()}


def _describe_end(command: str, execution: Execution) -> str:
    if execution.limit is not None:
        return f"the command {command!r} hit the sandbox's limit {execution.limit!r}"
    if execution.exit_code is None:
        return f"the command {command!r} was ended by signal {execution.signal}"
    return describe_failure(command, execution.exit_code, execution.stderr)


@contextlib.asynccontextmanager
async def _pass_on(channel: socket.socket, run: asyncio.Future[Any], endpoint: Endpoint) -> AsyncIterator[None]:
    """Serve the endpoint at the listening socket that comes through the channel; nothing if the run ends before."""
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(channel, arrived.set)
    try:
        waiting = asyncio.ensure_future(arrived.wait())
        await asyncio.wait({waiting, run}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    finally:
        loop.remove_reader(channel)
    descriptors = socket.recv_fds(channel, 64, 1)[1] if arrived.is_set() else []
    if not descriptors:
        yield
        return
    upstream = urlsplit(endpoint.url)
    open_pipes: set[asyncio.Task[None]] = set()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pipe = asyncio.current_task()
        assert pipe is not None
        open_pipes.add(pipe)
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            there, back = await asyncio.open_connection(upstream.hostname, upstream.port)
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        open_pipes.discard(pipe)

    server = await asyncio.start_server(connect, sock=socket.socket(fileno=descriptors[0]))
    try:
        yield
    finally:
        server.close()
        for pipe in open_pipes:
            pipe.cancel()
        await asyncio.gather(*open_pipes, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side is gone, then close the writer."""
    with contextlib.suppress(ConnectionError), contextlib.closing(writer):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
