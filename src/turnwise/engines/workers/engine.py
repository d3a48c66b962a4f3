"""`PagedEngine` in several processes: more cores for sampling, each with the one thread that makes it exact.

The parameters of the model move to shared memory, where the optimizer changes them in place; a worker sees the change
without a copy and packs its weights again when it hears of the version. Messages go through a thread of their own, so
the callers' event loops come and go. Same request, same seed: same tokens and log-probabilities in every bit, whatever
the number of workers, because a row's arithmetic does not depend on its company.

**No request is computed while weights change.** The rule is the engine's own: `adopt` refuses while requests are open
unless the engine is paused, and `pause` returns when every worker has said that it stopped between two tokens. So
change weights when no request is open, or between `pause` and `resume`, and call `adopt`; weights that changed without
it are noticed at the next request only where autograd counts the change, which it does not for the step of a fused
optimizer."""

from __future__ import annotations

import asyncio
import copy
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, TypeVar

from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.core.types import Completion, IntArray, SamplingParams
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.paged.engine import EngineStatistics
from turnwise.engines.paged.runner import ModelRunner
from turnwise.engines.workers.link import END_S, WorkerPlan
from turnwise.engines.workers.messages import decode_completion, encode_request
from turnwise.engines.workers.pool import WorkerPool

T = TypeVar("T")


class WorkerEngine:
    """Implements `core.protocols.Engine`. Used from one thread, as the engine it multiplies."""

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
        """Arguments as `PagedEngine`'s; each worker samples its share of `max_concurrency` and has the cache for that.

        Workers start with the first request, as fresh interpreters, which takes seconds. A script that uses this must
        keep what it does under `if __name__ == "__main__"`, like all that starts such processes; `decode` must be
        picklable, and `grammars` not in use here.
        Raises EngineError as `PagedEngine` does, and for a model that is not on CPU.

        Args:
            num_workers: processes, of one thread each.
            start_s: a worker that is not ready after so long is ended and its requests fail.
            silence_s: a worker that has something to do and says nothing for so long, which is longer than any single
            step, is
                ended and its requests fail.
        """
        if model.device.type != "cpu":
            raise EngineError(
                f"the model is on {model.device}; engine workers share weights in memory of the CPU, use num_workers=1"
            )
        # Of one page: it refuses what the workers would, and watches the weights. It never runs.
        self._runner = ModelRunner(
            model, num_pages=1, page_size=32, max_context=max_context, fused=fused, attention=attention
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
        plan = WorkerPlan(model=_share(model), settings=settings, start_s=start_s, silence_s=silence_s)
        self._pool = WorkerPool(plan, num_workers=num_workers, max_open=share)
        self._patience_s = silence_s + 4 * END_S
        self._num_open = 0
        self._is_paused = False
        self.version = 0
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(self._loop,), name="engine workers", daemon=True)
        thread.start()
        self._stop = weakref.finalize(self, _stop, self._pool, self._loop, thread)

    @property
    def is_fused(self) -> bool:
        """Whether the workers run the packed decoder instead of the model's modules."""
        return self._runner.is_fused

    @property
    def num_computed_tokens(self) -> int:
        """Tokens run through the model by the workers that run now."""
        return self.statistics().num_computed_tokens

    def statistics(self) -> EngineStatistics:
        """Sums over the workers that run now, each since its start. Waits for their next token boundary."""
        counts = self._call(self._pool.statistics())
        return EngineStatistics(
            **{name: sum(count[name] for count in counts) for name in EngineStatistics.__dataclass_fields__}
        )

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        return self._pool.pids()

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: str) -> Completion:
        """See `Engine.generate`. Raises EngineError also when the request's worker ends: the others finish, and it is
        replaced."""
        stamp = self._runner.weights_stamp()
        if stamp != self._stamp:
            self._renew()
        fields = encode_request(prompt_ids, params, session)
        self._num_open += 1
        try:
            answer = await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(self._pool.generate(fields), self._loop)
            )
        finally:
            self._num_open -= 1
        return decode_completion(answer)

    async def release(self, session: str) -> None:
        """See `Engine.release`."""
        asyncio.run_coroutine_threadsafe(self._pool.release(session), self._loop)

    def adopt(self, version: int) -> None:
        """The parameters changed in place: later tokens carry `version`, and no cache of older weights is read again.

        Returns when every worker knows. Raises EngineError while requests are being sampled, unless the engine is
        paused: then they go on under the new weights, their tokens so far recomputed."""
        if self._num_open and not self._is_paused:
            raise EngineError(
                f"weights changed to version {version} while {self._num_open} requests are being sampled; "
                "wait for them or pause the engine first"
            )
        self.version = version
        self._renew()

    def pause(self) -> None:
        """Stop at the next token boundary, and return when every worker has. Requests keep what they sampled; new ones
        queue."""
        self._is_paused = True
        self._call(self._pool.pause())

    def resume(self) -> None:
        """Go on after `pause`."""
        self._is_paused = False
        self._call(self._pool.resume())

    async def close(self) -> None:
        """Fail what is still being sampled and end the workers. A later request starts new ones."""
        self._call(self._pool.close())

    def _renew(self) -> None:
        self._stamp = self._runner.weights_stamp()
        self._call(self._pool.adopt(self.version))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the workers' loop and wait."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(self._patience_s)
        except TimeoutError:
            future.cancel()
            raise EngineError(f"the engine workers did not answer in {self._patience_s:g} s") from None


def _share(model: PreTrainedModel) -> PreTrainedModel:
    """Move what the model holds to shared memory; a second tree of modules around the very same parameters.

    A tree of its own, because what is hung into the first one later (hooks of a value head) need not reach the workers.
    """
    tensors = [*model.parameters(), *model.buffers()]
    with boundary(EngineError, "the weights cannot move to shared memory; make /dev/shm larger or use num_workers=1"):
        for tensor in tensors:
            tensor.share_memory_()
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(pool: WorkerPool, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """End the workers, then the thread of their messages."""

    async def finish() -> None:
        await pool.close()
        await asyncio.sleep(0)  # what was cancelled ends
        loop.stop()

    asyncio.run_coroutine_threadsafe(finish(), loop)
    if threading.current_thread() is not thread:
        thread.join(END_S)
