"""Continuous batching over live conversations, on the trainer's own parameters.

Each step takes one token from every decoding request and as many prompt or observation tokens of waiting ones as the
batch allows, runs the model once on all of them laid end to end, and samples where a request's last token was reached.
A request that finishes frees its place at once; its conversation keeps its cache slot until `release`, so the next turn
computes only the tokens it adds. Knows nothing about text except to find stop strings, and nothing about tasks or
rewards."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.seeds import uniforms
from turnwise.core.types import Completion, FinishReason, IntArray, SamplingParams, to_floats, to_ids
from turnwise.engines.local.cache import CachedAttention, Chunk, KVCache
from turnwise.engines.sampling import sample_tokens
from turnwise.models.invariant import MIN_BATCH_ROWS

# Longest text tail, in tokens, searched for a stop string.
STOP_TAIL_TOKENS = 16


@dataclass(slots=True, eq=False)
class _Session:
    """A conversation's slot and the tokens its cache holds."""

    slot: int
    cached: list[int] = field(default_factory=list)
    version: int = 0


@dataclass(slots=True, eq=False)
class _Request:
    """One completion being sampled."""

    session: _Session
    pending: list[int]
    """Tokens known but not yet in the cache."""
    params: SamplingParams
    uniforms: np.ndarray
    future: asyncio.Future[Completion]
    version_first: int
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class LocalEngine:
    """Implements `core.protocols.Engine`. One event loop, one thread; torch does the parallel work."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_concurrency: int,
        max_context: int,
        max_batch_tokens: int = 1024,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        """`decode` is needed only for stop strings; without it a request that has any is refused."""
        self._model = model
        self._cache = KVCache(
            model.config, num_slots=max_concurrency, max_context=max_context, dtype=model.dtype, device=model.device
        )
        self._max_batch_tokens = max_batch_tokens
        self._decode = decode
        self._vocab_size = int(model.config.vocab_size)
        self._sessions: dict[str, _Session] = {}
        self._free = list(range(max_concurrency))
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._active: list[_Request] = []
        self._pump: asyncio.Task[None] | None = None
        self.version = 0
        self.num_computed_tokens = 0
        """Tokens run through the model since the start, each position once per version."""

    def adopt(self, version: int) -> None:
        """The parameters changed in place: later tokens carry `version`, and no cache of older weights is read
        again."""
        if self._active:
            raise EngineError(
                f"weights changed to version {version} while {len(self._active)} requests are being sampled; wait "
                "for them"
            )
        self.version = version

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: str) -> Completion:
        """See `Engine.generate`. Waits for a free slot when `max_concurrency` conversations are open."""
        prompt = prompt_ids.tolist()
        self._check(prompt, params, session)
        state = self._sessions.get(session)
        if state is None:
            state = _Session(slot=await self._take_slot(), version=self.version)
            self._sessions[session] = state
        shared = len(state.cached)
        if state.version != self.version or prompt[:shared] != state.cached or shared >= len(prompt):
            # Older weights or a rewritten history: start over.
            state.cached.clear()
            state.version = self.version
            shared = 0
        request = _Request(
            session=state,
            pending=prompt[shared:],
            params=params,
            uniforms=uniforms(params.seed, params.max_tokens),
            future=asyncio.get_running_loop().create_future(),
            version_first=self.version,
        )
        self._active.append(request)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        try:
            return await request.future
        except asyncio.CancelledError:
            self._active = [other for other in self._active if other is not request]
            raise

    async def release(self, session: str) -> None:
        """See `Engine.release`."""
        state = self._sessions.pop(session, None)
        if state is None:
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._free.append(state.slot)
                waiter.set_result(None)
                return
        self._free.append(state.slot)

    def _check(self, prompt: list[int], params: SamplingParams, session: str) -> None:
        room = self._cache.max_context - len(prompt)
        if not prompt:
            raise EngineError(f"request of {session!r} has an empty prompt; render at least one token")
        if params.max_tokens < 1:
            raise EngineError(f"request of {session!r} asks for max_tokens={params.max_tokens}; ask for at least 1")
        if room < params.max_tokens:
            raise EngineError(
                f"request of {session!r}: prompt of {len(prompt)} tokens plus max_tokens={params.max_tokens} exceeds "
                f"engine.max_context={self._cache.max_context}; shorten the task or raise engine.max_context"
            )
        if min(prompt) < 0 or max(prompt) >= self._vocab_size:
            raise EngineError(
                f"request of {session!r} holds a token id outside the vocabulary of {self._vocab_size}: "
                f"{min(prompt)}..{max(prompt)}"
            )
        if params.grammar is not None:
            raise EngineError(
                f"request of {session!r} has a grammar, which this engine does not know; use engine.kind='paged'"
            )
        if params.stop and self._decode is None:
            raise EngineError(
                f"request of {session!r} has stop strings {params.stop} but the engine was built without `decode`"
            )

    async def _take_slot(self) -> int:
        while not self._free:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        return self._free.pop(0)

    async def _run(self) -> None:
        while self._active:
            try:
                finished = self._step()
            except Exception as cause:  # noqa: BLE001 - a failed batch fails its requests, never the engine
                failed, self._active = self._active, []
                for request in failed:
                    request.session.cached.clear()
                    if not request.future.done():
                        request.future.set_exception(
                            EngineError(f"the engine step failed: {type(cause).__name__}: {cause}")
                        )
                continue
            for request, outcome in finished:
                if request.future.done():
                    continue
                if isinstance(outcome, EngineError):
                    request.future.set_exception(outcome)
                else:
                    request.future.set_result(outcome)
            # Two turns of the loop: one wakes the finished requests, one lets their environments answer.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _plan(self) -> list[tuple[_Request, int]]:
        """Requests of this step and how many of their pending tokens run: decoding first, then prompts, in order of
        arrival."""
        ready = [(r, 1) for r in self._active if len(r.pending) == 1][: self._max_batch_tokens]
        budget = self._max_batch_tokens - len(ready)
        for request in self._active:
            if budget <= 1:
                break
            if len(request.pending) > 1:
                count = min(len(request.pending), budget)
                ready.append((request, count))
                budget -= count
        ready.sort(key=lambda item: item[1] > 1)
        return ready

    @torch.inference_mode()
    def _step(self) -> list[tuple[_Request, Completion | EngineError]]:
        plan = self._plan()
        ids: list[int] = []
        positions: list[int] = []
        chunks: list[Chunk] = []
        last: list[int] = []
        for request, count in plan:
            start = len(request.session.cached)
            ids += request.pending[:count]
            positions += range(start, start + count)
            chunks.append(Chunk(request.session.slot, start, count))
            last.append(len(ids) - 1)
        num_padding = max(0, MIN_BATCH_ROWS - len(ids))
        self.num_computed_tokens += len(ids)
        sampling = [i for i, (request, count) in enumerate(plan) if count == len(request.pending)]
        rows = [last[i] for i in sampling] or [0]
        rows += [rows[-1]] * max(0, MIN_BATCH_ROWS - len(rows))
        device = self._model.device
        logits = self._model(
            input_ids=torch.tensor([ids + [0] * num_padding], device=device),
            position_ids=torch.tensor([positions + [0] * num_padding], device=device),
            use_cache=False,
            logits_to_keep=torch.tensor(rows, device=device),
            attention_plan=CachedAttention(self._cache, chunks),
        ).logits[0]
        for request, count in plan:
            request.session.cached += request.pending[:count]
            del request.pending[:count]
        return self._sample([plan[i][0] for i in sampling], logits)

    def _sample(
        self, requests: list[_Request], logits: torch.Tensor
    ) -> list[tuple[_Request, Completion | EngineError]]:
        if not requests:
            return []
        logits = logits[: len(requests)]
        finite = torch.isfinite(logits).all(-1).tolist()
        token_ids, logprobs = sample_tokens(
            logits,
            [r.params for r in requests],
            torch.tensor([r.uniforms[len(r.sampled)] for r in requests], dtype=torch.float64, device=logits.device),
        )
        finished: list[tuple[_Request, Completion | EngineError]] = []
        for request, ok, token, logprob in zip(requests, finite, token_ids.tolist(), logprobs.tolist(), strict=True):
            if not ok:
                finished.append(
                    (
                        request,
                        EngineError(
                            f"logits are not finite after {len(request.session.cached)} tokens; the weights may "
                            "have diverged"
                        ),
                    )
                )
                continue
            request.sampled.append(token)
            request.logprobs.append(logprob)
            reason = self._finish_reason(request)
            if reason is None:
                request.pending.append(token)
            else:
                finished.append((request, self._completion(request, reason)))
        done = {id(request) for request, _ in finished}
        if done:
            self._active = [r for r in self._active if id(r) not in done]
        return finished

    def _completion(self, request: _Request, reason: FinishReason) -> Completion:
        return Completion(
            token_ids=to_ids(request.sampled),
            logprobs=to_floats(request.logprobs),
            finish_reason=reason,
            version_first=request.version_first,
            version_last=self.version,
        )

    def _finish_reason(self, request: _Request) -> FinishReason | None:
        params = request.params
        if request.sampled[-1] in params.stop_token_ids:
            return FinishReason.STOP
        if params.stop and self._decode is not None:
            tail = self._decode(request.sampled[-STOP_TAIL_TOKENS:])
            if any(text in tail for text in params.stop):
                return FinishReason.STOP
        return FinishReason.LENGTH if len(request.sampled) >= params.max_tokens else None
