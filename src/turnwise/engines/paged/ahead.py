"""A stage before the steps: encodes the pictures of requests that arrive, in a thread of its own.

Whatever it did not encode, a step encodes itself: the stage changes when features are computed, never which."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import torch

from turnwise.core.errors import EngineError, TurnwiseError, boundary
from turnwise.engines.paged.seeing import KnownPictures
from turnwise.models.threads import build_executor

BATCH = 16
"""Pictures that are encoded together."""


def build_stage(known: KnownPictures | None, *, num_threads: int) -> EncodeStage | None:
    """Build the stage of an engine; None for one of text only."""
    return None if known is None else EncodeStage(known, num_threads=num_threads)


class EncodeStage:
    """Queues pictures and encodes them, first come, first served."""

    def __init__(self, known: KnownPictures, *, num_threads: int) -> None:
        self._known = known
        self._executor = build_executor(num_threads, "encode")
        self._queue: dict[str, asyncio.Event] = {}
        """Digests in order of arrival, with what tells that the picture was encoded or cannot be."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def encode(self, digests: Iterable[str]) -> None:
        """Wait until these pictures are encoded. One that cannot be is left to the step, whose request it then
        fails."""
        wanted = list(dict.fromkeys(digests))
        if self._known.knows(wanted):
            return
        events = [self._queue.setdefault(digest, asyncio.Event()) for digest in wanted]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        for event in events:
            await event.wait()

    def close(self) -> None:
        """End the thread after what it encodes now."""
        self._is_closed = True
        self._executor.shutdown(wait=False)

    async def _run(self) -> None:
        # Requests made in the same iteration of the event loop are encoded together.
        await asyncio.sleep(0)
        try:
            while self._queue and not self._is_closed:
                batch = list(self._queue)[:BATCH]
                await asyncio.get_running_loop().run_in_executor(self._executor, self._encode, batch)
                self._release(batch)
        finally:
            self._release(list(self._queue))  # nobody waits for a stage that has ended

    def _release(self, digests: list[str]) -> None:
        for digest in digests:
            self._queue.pop(digest).set()

    def _encode(self, digests: list[str]) -> None:
        try:
            with torch.inference_mode(), boundary(EngineError, "the pictures cannot be encoded"):
                self._known.encode_ahead(digests)
        except TurnwiseError:
            return  # the step of the request that shows the broken one says so
