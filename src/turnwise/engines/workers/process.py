"""One engine worker: a paged engine behind a socket, in its own process with one torch thread.

It ends when the thread that started it ends, for whatever reason (Linux: the kernel kills it), and when the socket
closes. A worker that has answered `pause` computes nothing until `resume`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.types import Session
from turnwise.engines.paged import PagedEngine
from turnwise.engines.workers.messages import decode_request, encode_completion
from turnwise.engines.workers.serving import Say, follow_parent, serve
from turnwise.models.allocator import keep_freed_memory
from turnwise.models.attention import register_attention
from turnwise.models.experts import register_experts
from turnwise.models.vision.eyes import build_eyes


def run_worker(
    end: socket.socket,
    parent_pid: int,
    model: PreTrainedModel,
    eyes: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    alive_s: float,
) -> None:
    """Run a worker from start to end. `model` is in shared memory and gets `eyes`; `settings` are those of
    `PagedEngine`; `alive_s` is the time between heartbeats."""
    if not follow_parent(parent_pid):
        return
    torch.set_num_threads(1)
    keep_freed_memory()
    register_attention()
    register_experts()

    async def build(_: Mapping[str, Any], say: Say) -> _Worker:
        build_eyes(model, eyes)
        return _Worker(PagedEngine(model, **settings), say)

    asyncio.run(serve(end, build, {"alive_s": alive_s}))


@dataclass(slots=True)
class _Worker:
    """Implements `Service`."""

    engine: PagedEngine
    say: Say
    is_paused: bool = False

    @property
    def is_computing(self) -> bool:
        return self.engine.is_computing

    def statistics(self) -> Mapping[str, Any]:
        return asdict(self.engine.statistics())

    async def answer(self, message: Mapping[str, Any]) -> Any:
        match message["kind"]:
            case "generate":
                prompt, params, session = decode_request(message)
                if not message["watch"]:
                    return encode_completion(await self.engine.generate_seeing(prompt, params, session=session))
                receive = partial(self.tell_part, message["id"])
                return encode_completion(
                    await self.engine.stream(prompt.token_ids, params, session=session, receive=receive)
                )
            case "release":
                await self.engine.release(Session(**message["session"]))
            case "pause":
                self.is_paused = True
                return await self.engine.pause(message["interrupt"])
            case "resume":
                self.is_paused = False
                await self.engine.resume()
            case "adopt":
                # The training process decides when weights may change; here requests stop between two tokens.
                if not self.is_paused:
                    await self.engine.pause("continue")
                try:
                    return dict(await self.engine.adopt(message["version"]))
                finally:
                    if not self.is_paused:
                        await self.engine.resume()
            case kind:
                raise EngineError(f"unknown message kind {kind!r} for an engine worker")
        return None

    def tell_part(self, number: int, token_ids: Sequence[int]) -> None:
        """Send new tokens of a request."""
        self.say(id=number, part=list(token_ids))
