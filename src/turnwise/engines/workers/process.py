"""One engine worker: a paged engine behind a socket, in a process of its own with one thread.

It ends when the thread that started it ends, whatever happens to that (Linux: the kernel kills it), and when the socket
closes. Messages are handled between two steps of the engine, so a worker that has answered `pause` computes nothing
until `resume`."""

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
from turnwise.engines.paged import PagedEngine
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
    worker.say({"id": READY_ID, "answer": None})
    signs = asyncio.create_task(worker.say_alive(alive_s))
    while (message := await read_message(reader)) is not None:
        await worker.handle(message)
    signs.cancel()


@dataclass(slots=True)
class _Worker:
    """Requests by number, and the engine they go to."""

    engine: PagedEngine
    writer: asyncio.StreamWriter
    is_paused: bool = False
    requests: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    def say(self, message: Mapping[str, Any]) -> None:
        self.writer.write(encode_message(message))

    async def say_alive(self, alive_s: float) -> None:
        """While steps are made, however long a completion takes, the other side knows it."""
        while True:
            await asyncio.sleep(alive_s)
            if self.requests:
                self.say({})

    async def handle(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        match message["kind"]:
            case "generate":
                assert number is not None
                self.requests[number] = asyncio.create_task(self._generate(number, message))
            case "cancel":
                request = self.requests.get(int(message["request"]))
                if request is not None:
                    request.cancel()
                    # Gone from the engine before the next message is read.
                    await asyncio.wait([request])
            case "release":
                await self.engine.release(message["session"])
            case kind:
                answer = self._control(kind, message)
                if number is not None:
                    self.say({"id": number, "answer": answer})

    def _control(self, kind: str, message: Mapping[str, Any]) -> Any:
        if kind == "adopt":
            # Who may change weights is judged where they change; here everybody is between two tokens.
            self.engine.pause()
            self.engine.adopt(message["version"])
        elif kind == "statistics":
            return asdict(self.engine.statistics())
        else:
            self.is_paused = {"pause": True, "resume": False}[kind]
        if self.is_paused:
            self.engine.pause()
        else:
            self.engine.resume()
        return None

    async def _generate(self, number: int, message: Mapping[str, Any]) -> None:
        try:
            with boundary(EngineError, "the engine worker failed"):
                prompt_ids, params, session = decode_request(message)
                completion = await self.engine.generate(prompt_ids, params, session=session)
                self.say({"id": number, "answer": encode_completion(completion)})
        except EngineError as error:
            self.say({"id": number, "error": str(error)})
        finally:
            del self.requests[number]
