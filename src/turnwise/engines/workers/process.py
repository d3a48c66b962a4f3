"""One engine worker: a paged engine behind a socket, in a process of its own with one torch thread.

It ends when the thread that started it ends, however that happens (Linux: the kernel kills it), and when the socket
closes. A worker that has answered `pause` computes nothing until `resume`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.core.types import Session
from turnwise.engines.paged import EngineStatistics, PagedEngine
from turnwise.engines.workers.messages import READY_ID, decode_request, encode_completion, encode_message, read_message
from turnwise.models.allocator import keep_freed_memory
from turnwise.models.attention import register_attention
from turnwise_sandbox.kernel.syscalls import set_pdeathsig


def run_worker(
    end: socket.socket, parent_pid: int, model: PreTrainedModel, settings: Mapping[str, Any], alive_s: float
) -> None:
    """The whole life of a worker. `model` is on shared memory, `settings` are those of `PagedEngine`; `alive_s` between
    signs of life."""
    # The terminal's interrupt goes to the whole foreground group; the training process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        set_pdeathsig()
    if os.getppid() != parent_pid:
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    register_attention()
    asyncio.run(_serve(end, model, settings, alive_s))


async def _serve(end: socket.socket, model: PreTrainedModel, settings: Mapping[str, Any], alive_s: float) -> None:
    reader, writer = await asyncio.open_connection(sock=end)
    try:
        with boundary(EngineError, "the engine worker cannot be built"):
            worker = _Worker(PagedEngine(model, **settings), writer)
    except EngineError as error:
        writer.write(encode_message({"id": READY_ID, "error": str(error)}))
        await writer.drain()
        return
    worker.say(id=READY_ID, answer=None)
    signs = asyncio.create_task(worker.say_alive(alive_s))
    while (message := await read_message(reader)) is not None:
        await worker.handle(message)
    signs.cancel()


@dataclass(slots=True)
class _Worker:
    """The engine, and tasks by the number of the message they answer."""

    engine: PagedEngine
    writer: asyncio.StreamWriter
    is_paused: bool = False
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    def say(self, **fields: Any) -> None:
        self.writer.write(encode_message({**fields, "statistics": asdict(self.engine.statistics())}))

    async def say_alive(self, alive_s: float) -> None:
        """A sign of life unless one step is computed all the time, so that a step that hangs is noticed."""
        last: EngineStatistics | None = None
        while True:
            await asyncio.sleep(alive_s)
            statistics = self.engine.statistics()
            if statistics != last or (self.tasks and not self.engine.is_computing):
                self.say()
            last = statistics

    async def handle(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        match message["kind"]:
            case "cancel":
                task = self.tasks.get(int(message["request"]))
                if task is not None:
                    task.cancel()
                    # Gone from the engine before the next message is read.
                    await asyncio.wait([task])
            case "release":
                await self.engine.release(Session(**message["session"]))
            case _ if number is None:
                await self._compute_answer(message)
            case _:
                self.tasks[number] = task = asyncio.create_task(self._answer(number, message))
                if message["kind"] not in ("generate", "pause"):
                    # Replies and a pause that waits for them may take long; the others keep their order.
                    await asyncio.wait([task])

    async def _answer(self, number: int, message: Mapping[str, Any]) -> None:
        try:
            with boundary(EngineError, "the engine worker failed"):
                self.say(id=number, answer=await self._compute_answer(message))
        except EngineError as error:
            self.say(id=number, error=str(error))
        finally:
            del self.tasks[number]

    async def _compute_answer(self, message: Mapping[str, Any]) -> Any:
        match message["kind"]:
            case "generate":
                prompt_ids, params, session = decode_request(message)
                return encode_completion(await self.engine.generate(prompt_ids, params, session=session))
            case "pause":
                self.is_paused = True
                return await self.engine.pause(message["interrupt"])
            case "resume":
                self.is_paused = False
                await self.engine.resume()
                return None
            case "adopt":
                # The training process judges when weights may change; here requests stop between two tokens.
                if not self.is_paused:
                    await self.engine.pause("continue")
                try:
                    return dict(await self.engine.adopt(message["version"]))
                finally:
                    if not self.is_paused:
                        await self.engine.resume()
            case kind:
                raise EngineError(f"the engine worker does not know messages of kind {kind!r}")
