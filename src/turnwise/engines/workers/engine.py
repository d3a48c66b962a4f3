"""Runs `PagedEngine` in several processes: more cores for sampling, each process with the single thread that makes it
exact.

The parameters of the model move to shared memory, where they change in place; a worker sees the change without a copy
and packs its weights again when it adopts the version. The same request with the same seed yields the same tokens and
log-probabilities in every bit, whatever the number of workers, because a row's arithmetic does not depend on the rest
of its batch.

**No request is computed while weights change.** Change weights when no request is open, or between `pause` and
`resume`, and call `adopt`; weights that changed without it are noticed at the next request only where autograd counts
the change, which it does not for the step of a fused optimizer."""

from __future__ import annotations

import asyncio
import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Literal

from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.core.protocols import Interrupt, Receive
from turnwise.core.types import Completion, IntArray, Prompt, SamplingParams, Session
from turnwise.engines.admission import check_idle
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.paged.engine import EngineStatistics
from turnwise.engines.paged.runner import build_runner
from turnwise.engines.workers.link import WorkerPlan, start_link
from turnwise.engines.workers.messages import decode_completion, encode_request
from turnwise.engines.workers.pool import WorkerPool
from turnwise.models.checksums import compute_checksums
from turnwise.models.vision.eyes import describe_eyes, take_off_eyes


class WorkerEngine:
    """Implements `core.protocols.PausableEngine`. Belongs to the event loop that first uses it."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        num_workers: int,
        max_concurrency: int,
        max_context: int,
        max_batch_tokens: int = 1024,
        fused: bool | None = None,
        attention: Literal["gather", "flex"] = "gather",
        max_draft_tokens: int = 0,
        grammars: GrammarCompiler | None = None,
        decode: Callable[[Sequence[int]], str] | None = None,
        start_s: float = 180.0,
        silence_s: float = 600.0,
    ) -> None:
        """Takes the arguments of `PagedEngine`; each worker samples its share of `max_concurrency` and has a cache for
        that share.

        Workers start with the first request, as fresh interpreters, which takes seconds. A script that uses this must
        keep its code under `if __name__ == "__main__"`, like every script that starts such processes; `decode` must be
        picklable, and `grammars` must not have compiled a grammar in this process. Raises EngineError as `PagedEngine`
        does, and for a model that is not on CPU.

        Args:
            num_workers: processes, of one thread each.
            start_s: a worker that is not ready after this many seconds is ended and its requests fail.
            silence_s: a worker that has something to do and says nothing for so long, which is longer than any single
                step, is ended and its requests fail.
        """
        if model.device.type != "cpu":
            raise EngineError(
                f"the model is on {model.device}; engine workers share weights in CPU memory; use engine.kind='paged'"
            )
        # With one page only: it refuses what the workers would refuse, and watches the weights. It never runs.
        self._runner = build_runner(
            model,
            max_concurrency=1,
            max_context=max_context,
            num_pages=1,
            page_size=32,
            fused=fused,
            attention=attention,
        )
        self._stamp = self._runner.weights_stamp()
        share = -(-max_concurrency // num_workers)
        settings = {
            "max_concurrency": share,
            "max_context": max_context,
            "max_batch_tokens": max_batch_tokens,
            "fused": fused,
            "attention": attention,
            "max_draft_tokens": max_draft_tokens,
            "grammars": grammars,
            "decode": decode,
        }
        plan = WorkerPlan(
            model=_share(model), eyes=describe_eyes(model), settings=settings, start_s=start_s, silence_s=silence_s
        )
        self._pool = WorkerPool(partial(start_link, plan=plan), num_workers=num_workers, max_open=share)
        self._num_open = 0
        self._is_paused = False
        self._is_closed = False
        self._renewal: asyncio.Task[Mapping[str, int] | None] | None = None
        """Task that tells the workers about weights that changed without `adopt`; requests wait for it."""
        self.version = 0
        weakref.finalize(self, self._pool.kill)

    @property
    def is_fused(self) -> bool:
        """Whether the workers run the packed decoder instead of the model's modules."""
        return self._runner.is_fused

    @property
    def num_computed_tokens(self) -> int:
        """Tokens run through the model by the running workers, as of their last messages."""
        return self.statistics().num_computed_tokens

    def statistics(self) -> EngineStatistics:
        """Sums over the running workers, each since its start and as of its last message, which is at most half a
        second old while it samples."""
        counts = self._pool.statistics()
        names = EngineStatistics.__dataclass_fields__
        return EngineStatistics(**{name: sum(count[name] for count in counts) for name in names})  # type: ignore[arg-type]

    def worker_pids(self) -> list[int]:
        """Process ids of the running workers."""
        return self._pool.pids()

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`. Also raises EngineError if the request's worker ends: the other workers continue, and
        this one is replaced at the next request."""
        return await self._sample(Prompt(token_ids=prompt_ids), params, session, None)

    async def generate_seeing(self, prompt: Prompt, params: SamplingParams, *, session: Session) -> Completion:
        """See `SeeingEngine.generate_seeing`: workers read pictures from the run's store."""
        return await self._sample(prompt, params, session, None)

    async def stream(
        self, prompt_ids: IntArray, params: SamplingParams, *, session: Session, receive: Receive | None
    ) -> Completion:
        """See `StreamingEngine.stream`."""
        return await self._sample(Prompt(token_ids=prompt_ids), params, session, receive)

    async def _sample(
        self, prompt: Prompt, params: SamplingParams, session: Session, receive: Receive | None
    ) -> Completion:
        if self._is_closed:
            raise EngineError(f"the engine is closed and rejected the request of '{session}'")
        stamp = self._runner.weights_stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._renewal = asyncio.create_task(self._pool.adopt(self.version))
        if self._renewal is not None and not self._renewal.done():
            await asyncio.shield(self._renewal)
        self._num_open += 1
        try:
            fields = {**encode_request(prompt, params, session), "watch": receive is not None}
            hear = None if receive is None else lambda link, number, part: receive(part)
            answer = await self._pool.ask_one("generate", fields, session, hear=hear)
        finally:
            self._num_open -= 1
        return decode_completion(answer)

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        link = self._pool.release(session)
        if link is not None:
            link.tell("release", session=asdict(session))

    async def pause(self, interrupt: Interrupt = "continue") -> int:
        """See `PausableEngine.pause`. A worker that does not answer is ended, and its requests fail."""
        self._is_paused = True
        return await self._pool.pause(interrupt)

    async def adopt(self, version: int) -> Mapping[str, int]:
        """See `PausableEngine.adopt`. Every worker computes checksums of the weights that it holds; also raises
        EngineError if they differ."""
        check_idle(version, 0 if self._is_paused else self._num_open)
        self.version = version
        self._stamp = self._runner.weights_stamp()
        sums = await self._pool.adopt(version)
        # Before the first request there is no worker; later ones pack what is in shared memory.
        return await asyncio.to_thread(compute_checksums, self._runner.model) if sums is None else sums

    async def resume(self) -> None:
        """See `PausableEngine.resume`."""
        self._is_paused = False
        await self._pool.resume()

    async def close(self) -> None:
        """See `Engine.close`."""
        self._is_closed = True
        await self._pool.close()


def _share(model: PreTrainedModel) -> PreTrainedModel:
    """Move the model's tensors to shared memory. Returns a second tree of modules around the very same parameters.

    It is a separate tree because hooks added to the first one later (for a value head) must not reach the workers.
    """
    tensors = [*model.parameters(), *model.buffers()]
    with boundary(
        EngineError, "cannot move the weights to shared memory; make /dev/shm larger or use engine.kind='paged'"
    ):
        for tensor in tensors:
            tensor.share_memory_()
    shared = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
    take_off_eyes(shared)
    return shared
