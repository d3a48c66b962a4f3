"""The process at the other end of a link: answers messages, sends heartbeats, and ends with its parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from turnwise.core.errors import EngineError, GrammarError, TurnwiseError, boundary
from turnwise.engines.workers.messages import READY_ID, encode_message, read_message
from turnwise_sandbox.kernel.syscalls import set_pdeathsig

AT_ONCE = ("generate", "play", "pause")
"""Messages answered concurrently: replies, episodes and a pause that waits for them may take long. Other answers keep
their order."""


class Service(Protocol):
    """The object that answers messages."""

    async def answer(self, message: Mapping[str, Any]) -> Any:
        """Answer with plain data. Raises EngineError for a message that it does not know."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """Statistics sent with every message."""
        ...

    @property
    def is_computing(self) -> bool:
        """Whether it is computing and cannot send heartbeats: a step that hangs sends none."""
        ...


MAX_LOG_BYTES, KEPT_LOG_BYTES = 16 * 2**20, 2**20
"""Size in bytes above which a program's log is cut, and how many bytes of its end are kept."""
TERM_S = 20
"""Seconds that a process survives SIGTERM unless the training process, which decides, ends it before."""
Say = Callable[..., None]
"""Sends the present statistics, with the fields of a message."""


def follow_parent(parent_pid: int) -> bool:
    """End with the thread that started this process, and ignore the terminal's interrupt. Returns False if that thread
    has ended."""
    # The terminal's interrupt goes to the whole foreground group; the training process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A scheduler sends this to every process of a job; multiprocessing sends it, and waits, when its parent ends.
    signal.signal(signal.SIGTERM, lambda number, frame: signal.alarm(TERM_S))
    with contextlib.suppress(OSError):
        set_pdeathsig()
    return os.getppid() == parent_pid


async def serve(
    end: socket.socket,
    build: Callable[[Mapping[str, Any], Say], Awaitable[Service]],
    settings: Mapping[str, Any] | None,
) -> None:
    """Build a service from its settings (None: they arrive first over the socket) and answer until the other side
    closes the socket. `settings["alive_s"]` is the time between heartbeats."""
    reader, writer = await asyncio.open_connection(sock=end)
    has_log = settings is None  # a program's output is a file of its own, see `Program.log`
    settings = settings if settings is not None else await read_message(reader)
    if settings is None:
        return
    server = _Server(writer)
    try:
        with boundary(EngineError, "the worker cannot be built"):
            server.service = await build(settings, server.say)
    except TurnwiseError as error:
        writer.write(encode_message({"id": READY_ID, "error": str(error)}))
        await writer.drain()
        return
    server.say(id=READY_ID, answer=None)
    signs = asyncio.create_task(server.say_alive(settings["alive_s"], has_log))
    while (message := await read_message(reader)) is not None:
        await server.handle(message)
    signs.cancel()


def cut_log(output: int) -> None:
    """Keep only the end of a log to which this process appends, in shared memory: environments may print at every
    step."""
    if os.fstat(output).st_size <= MAX_LOG_BYTES:
        return
    with open(f"/proc/self/fd/{output}", "rb") as file:
        file.seek(-KEPT_LOG_BYTES, os.SEEK_END)
        end = file.read()
    os.ftruncate(output, 0)
    os.write(output, end)


@dataclass(slots=True)
class _Server:
    """A service, and its tasks by the number of the message that they answer."""

    writer: asyncio.StreamWriter
    service: Service = field(init=False)
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    def say(self, **fields: Any) -> None:
        self.writer.write(encode_message({**fields, "statistics": dict(self.service.statistics())}))

    async def say_alive(self, alive_s: float, has_log: bool) -> None:
        """Send heartbeats unless a single step computes all the time, so that a hanging step is noticed; also keep a
        program's log short."""
        last: Mapping[str, Any] = {}
        while True:
            await asyncio.sleep(alive_s)
            if has_log:
                cut_log(1)
            statistics = self.service.statistics()
            if statistics != last or (self.tasks and not self.service.is_computing):
                self.say()
            last = statistics

    async def handle(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        if message["kind"] == "cancel":
            task = self.tasks.get(int(message["request"]))
            if task is not None:
                task.cancel()
                # The task has left the service before the next message is read.
                await asyncio.wait([task])
        elif number is None:
            await self.service.answer(message)
        else:
            self.tasks[number] = task = asyncio.create_task(self._answer(number, message))
            if message["kind"] not in AT_ONCE:
                await asyncio.wait([task])

    async def _answer(self, number: int, message: Mapping[str, Any]) -> None:
        try:
            with boundary(EngineError, "the worker failed"):
                self.say(id=number, answer=await self.service.answer(message))
        except TurnwiseError as error:  # every error: an unanswered request waits forever
            self.say(id=number, error=str(error), concerns_grammar=isinstance(error, GrammarError))
        finally:
            del self.tasks[number]
