"""One engine worker as seen by the training process: its process, its socket, and the answers that it owes.

Every wait ends: with an answer, with the end of the worker, or after too long a silence, at which the worker is
killed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.multiprocessing as multiprocessing
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, GrammarError, boundary
from turnwise.core.notices import tell_loss
from turnwise.engines.workers.messages import READY_ID, encode_message, read_message
from turnwise.engines.workers.process import run_worker
from turnwise.hosts.host import RunningProcess
from turnwise.hosts.local import LOOPBACK

ALIVE_S = 0.5
"""Most seconds between two heartbeats."""
END_S = 5.0
"""Most seconds that a killed process may take to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """What every worker is started with."""

    model: PreTrainedModel
    """The model, with its parameters in shared memory and without eyes."""
    eyes: Mapping[str, Any] | None
    """Its eyes (`models.vision.eyes.describe_eyes`); None for a model that reads text."""
    settings: Mapping[str, Any]
    """Settings for `PagedEngine`."""
    start_s: float
    """Most seconds from the start of a process to its first message."""
    silence_s: float
    """Most seconds that a worker with work may send nothing: longer than any single step."""


class Link:
    """A running worker. Belongs to one event loop."""

    def __init__(
        self,
        process: RunningProcess,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        silence_s: float,
        carry: Callable[[Path], Awaitable[Path]] | None = None,
        address: str = LOOPBACK,
    ) -> None:
        """`carry` copies a folder to where the process finds it; None if the process is on this machine."""
        self.name = f"{process.name} (process {process.pid})"
        self.pid = process.pid
        self.address = address
        """Address of its machine, as reached by other machines of its host."""
        self._process = process
        self._reader, self._writer = reader, writer
        self._silence_s = silence_s
        self._carry = carry
        self._heard = asyncio.get_running_loop().time()
        self.statistics: Mapping[str, Any] = {}
        """Statistics of its engine, as of its last message."""
        self.hear_statistics: Callable[[], None] | None = None
        """Called when statistics arrive; None calls nothing."""
        self._numbers = itertools.count(READY_ID + 1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._hearing: dict[int, Callable[[Any], None]] = {}
        """Callbacks for partial replies, by request number."""
        self._reason: str | None = None
        self.refusal: str | None = None
        """Why it cannot start, in its own words; None if it has not refused."""
        self._tasks = [asyncio.create_task(self._watch())]

    @property
    def is_open(self) -> bool:
        """Whether the worker runs."""
        return self._reason is None

    async def hear_ready(self, start_s: float) -> None:
        """Wait for its first message. Raises EngineError, after ending the worker, if it is not ready in `start_s`."""
        ready = self._waiting[READY_ID] = asyncio.get_running_loop().create_future()
        self._tasks.append(asyncio.create_task(self._listen()))
        try:
            await asyncio.wait_for(ready, start_s)
        except TimeoutError:
            self.end(f"was not ready within {start_s:g} s")
            raise EngineError(f"{self.name} {self._reason}; the machine may be overloaded") from None
        except (EngineError, asyncio.CancelledError):
            self.end("could not start")
            raise
        finally:
            del self._waiting[READY_ID]

    async def ask(self, kind: str, *, hear: Callable[[int, Any], None] | None = None, **fields: Any) -> Any:
        """Ask the worker and return its answer. Raises EngineError with the worker's error, or if it ended. Cancelling
        also cancels the request in the worker. `hear` is called with the request's number and each part that a worker
        sends before the answer."""
        if self._reason is not None:
            raise EngineError(f"{self.name} {self._reason}")
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._heard = loop.time()
        number = next(self._numbers)
        future = self._waiting[number] = loop.create_future()
        if hear is not None:
            self._hearing[number] = functools.partial(hear, number)
        try:
            with boundary(EngineError, f"{self.name} cannot be sent what is not plain data"):
                self.tell(kind, id=number, **fields)
            return await future
        except asyncio.CancelledError:
            self.tell("cancel", request=number)
            raise
        finally:
            del self._waiting[number]
            self._hearing.pop(number, None)

    async def carry(self, folder: Path) -> Path:
        """Copy `folder` to the worker's machine if needed. Returns where the worker finds it. Raises EngineError."""
        return folder if self._carry is None else await self._carry(folder)

    def tell_settings(self, settings: Mapping[str, Any]) -> None:
        """Send the settings from which the worker is built, before anything else."""
        self._writer.write(encode_message(settings))

    def tell(self, kind: str, **fields: Any) -> None:
        """Send a message that has no answer. Messages arrive in order; does nothing if the worker has ended."""
        if self._reason is None:
            self._writer.write(encode_message({"kind": kind, **fields}))

    def end(self, reason: str, *, is_loss: bool = True) -> None:
        """Kill the worker; requests that wait for it get an EngineError with the worker's name and `reason`. If it
        `is_loss`, the keeper of the run is told."""
        if self._reason is not None:
            return
        self._reason = reason
        if is_loss:
            tell_loss(f"{self.name} {reason}")
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self.kill()
        # The transport keeps writing queued data unless it is told to drop it.
        self._writer.transport.abort()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineError(f"{self.name} {reason}"))

    def kill(self) -> None:
        """Only end the process; for use when there is no event loop."""
        self._process.kill()
        self._process.join(END_S)

    async def _listen(self) -> None:
        """Read until the worker ends; one whose messages cannot be read is ended."""
        try:
            with boundary(EngineError, "sent what cannot be read and was ended"):
                await self._read()
        except EngineError as error:
            self.end(str(error))

    def _hear(self, number: int, part: Any, future: asyncio.Future[Any]) -> None:
        """Hand over a part of a reply; a callback that fails ends its request alone."""
        hear = self._hearing.get(number)
        if hear is None:
            return
        try:
            with boundary(EngineError, f"a part of a reply of {self.name}"):
                hear(part)
        except EngineError as error:
            self.tell("cancel", request=number)
            future.set_exception(error)

    async def _read(self) -> None:
        while (message := await read_message(self._reader)) is not None:
            self._heard = asyncio.get_running_loop().time()
            self.statistics = message.get("statistics", self.statistics)
            if self.hear_statistics is not None:
                self.hear_statistics()
            future = self._waiting.get(message.get("id", -1))
            if future is None or future.done():
                continue
            if "part" in message:
                self._hear(message["id"], message["part"], future)
                continue
            if "error" in message:
                if message["id"] == READY_ID:
                    self.refusal = message["error"]
                kind = GrammarError if message.get("concerns_grammar") else EngineError
                future.set_exception(kind(message["error"]))
            else:
                future.set_result(message["answer"])
        self._process.join(END_S)
        status = self._process.exitcode
        if status is None:
            how = "was lost with what ran it"
        else:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self.end(f"{how}; its requests are lost, and the next ones get a new worker")

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._silence_s / 8)
            if self._waiting and READY_ID not in self._waiting and loop.time() - self._heard > self._silence_s:
                self.end(
                    f"was silent for {self._silence_s:g} s and was stopped; its requests are lost, and the next ones "
                    "get a new worker"
                )
                return


async def start_link(name: str, plan: WorkerPlan) -> Link:
    """Start a worker and wait until it is ready. Raises EngineError if it is not ready in `plan.start_s` or cannot be
    started.

    The process ends with the thread that runs this.
    """
    ours, theirs = socket.socketpair()
    process = multiprocessing.get_context("spawn").Process(
        target=run_worker,
        args=(theirs, os.getpid(), plan.model, plan.eyes, plan.settings, min(ALIVE_S, plan.silence_s / 8)),
        name=name,
        daemon=True,
    )
    with contextlib.closing(theirs), boundary(EngineError, f"{name} cannot be started"):
        process.start()
    try:
        link = Link(process, *await asyncio.open_connection(sock=ours), silence_s=plan.silence_s)
    except BaseException:
        process.kill()
        raise
    await link.hear_ready(plan.start_s)
    return link
