"""Continuous batching over live conversations: the plain engine.

Each step takes one token from every decoding request and as many prompt or observation tokens of waiting ones as the
batch allows, runs the model once on all of them laid end to end, and samples where a request's last token was reached.
A request that finishes frees its place at once; its conversation keeps its cache slot until `release`, so the next turn
computes only the tokens it adds.

Requests and sessions belong to the event loop; the arithmetic of a step runs in an executor of one thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import PreTrainedModel

from turnwise.core.asking import count_images
from turnwise.core.errors import EngineError, boundary
from turnwise.core.keys import Span, to_keys
from turnwise.core.protocols import Interrupt
from turnwise.core.seeds import uniforms
from turnwise.core.types import Completion, FinishReason, IntArray, Prompt, SamplingParams, Session, to_floats, to_ids
from turnwise.engines.admission import check_idle
from turnwise.engines.local.cache import CachedAttention, Chunk, KVCache
from turnwise.engines.paged.seeing import KnownPictures, Run, number_step
from turnwise.engines.pump import Pump
from turnwise.engines.sampling import sample_tokens
from turnwise.engines.stops import completes_stop, looking_for_stop
from turnwise.models.checksums import compute_checksums
from turnwise.models.invariant import MIN_BATCH_ROWS
from turnwise.models.paths import find_path, is_fast
from turnwise.models.shapes import measure_layers
from turnwise.models.vision.eyes import find_eyes
from turnwise.models.vision.placing import show


@dataclass(slots=True, eq=False)
class _Conversation:
    """A session's slot and the tokens its cache holds."""

    slot: int
    cached: list[int] = field(default_factory=list)
    """Their keys, which tell pictures apart."""
    version: int = 0


@dataclass(slots=True, eq=False)
class _Request:
    """One completion being sampled."""

    session: Session
    conversation: _Conversation
    prompt: list[int]
    shown_as: list[int]
    """Keys of the prompt's tokens (`core.keys.to_keys`)."""
    images: tuple[Span, ...]
    """Places of pictures in the prompt."""
    pending: list[int]
    """Tokens known but not yet in the cache."""
    params: SamplingParams
    uniforms: np.ndarray
    future: asyncio.Future[Completion]
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    has_begun: bool = False
    """Whether any of it has been computed."""


_Plan = list[tuple[_Request, int]]
"""Requests of a step and how many of their pending tokens run: decoding first, then prompts."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The tokens that a step sampled: one entry per request that reached its last token, in the plan's order."""

    is_finite: list[bool]
    token_ids: list[int]
    logprobs: list[float]


class LocalEngine:
    """Implements `core.protocols.PausableEngine`. Belongs to one event loop at a time, the one that uses it."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_concurrency: int,
        max_context: int,
        max_batch_tokens: int = 1024,
        num_threads: int = 1,
        executor: ThreadPoolExecutor | None = None,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        """`decode` is needed only for stop strings; without it, requests with stop strings are refused.

        `num_threads` and `executor` are those of `PagedEngine`.
        """
        if not is_fast(model):
            raise EngineError(
                f"engine.kind='local' needs the fast path, which does not support {type(model).__name__} "
                f"({find_path(model).reason}); use engine.kind='paged'"
            )
        self._model = model
        self._cache = KVCache(
            measure_layers(model),
            num_slots=max_concurrency,
            max_context=max_context,
            dtype=model.dtype,
            device=model.device,
        )
        self._max_batch_tokens = max_batch_tokens
        self._decode = decode
        self._vocab_size = int(model.config.get_text_config().vocab_size)
        self._conversations: dict[Session, _Conversation] = {}
        self._free = list(range(max_concurrency))
        eyes = find_eyes(model)
        self._pictures = None if eyes is None else KnownPictures(model, eyes)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._active: list[_Request] = []
        self._is_draining = False
        self._pump: Pump[_Plan, _Drawn] = Pump(self, num_threads=num_threads, executor=executor)
        self.version = 0
        self.num_computed_tokens = 0
        """Tokens run through the model since the start, each position once per version."""

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`. Waits for a free slot when `max_concurrency` conversations are open; a session has
        one request at a time."""
        return await self.generate_seeing(Prompt(token_ids=prompt_ids), params, session=session)

    async def generate_seeing(self, prompt: Prompt, params: SamplingParams, *, session: Session) -> Completion:
        """See `SeeingEngine.generate_seeing`."""
        ids, keys = prompt.token_ids.tolist(), to_keys(prompt.token_ids, prompt.images).tolist()
        self._check(ids, params, session)
        if prompt.images and self._pictures is None:
            raise EngineError(
                f"request of '{session}' shows {count_images(prompt)}, but the model reads text only; use a "
                "vision-language model"
            )
        conversation = self._conversations.get(session)
        if conversation is None:
            conversation = _Conversation(slot=await self._take_slot(session), version=self.version)
            self._conversations[session] = conversation
        shared = len(conversation.cached)
        if conversation.version != self.version or keys[:shared] != conversation.cached or shared >= len(keys):
            # Older weights or a rewritten history: start over.
            conversation.cached.clear()
            conversation.version = self.version
            shared = 0
        request = _Request(
            session=session,
            conversation=conversation,
            prompt=ids,
            shown_as=keys,
            images=prompt.images,
            pending=ids[shared:],
            params=params,
            uniforms=uniforms(params.seed, params.max_tokens),
            future=asyncio.get_running_loop().create_future(),
        )
        self._active.append(request)
        self._pump.start()
        try:
            return await request.future
        except asyncio.CancelledError:
            # A running step may still write to the slot, but only after the tokens that `cached` lists.
            self._remove(request)
            raise

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        conversation = self._conversations.pop(session, None)
        if conversation is None:
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._free.append(conversation.slot)
                waiter.set_result(None)
                return
        self._free.append(conversation.slot)

    async def pause(self, interrupt: Interrupt = "continue") -> int:
        """See `PausableEngine.pause`. Pausing a paused engine changes nothing."""
        if interrupt == "finish" and not self._pump.is_paused:
            self._is_draining = True
            await self._pump.drain()
        await self._pump.pause()
        if interrupt != "restart":
            return 0
        num_discarded = sum(len(request.sampled) for request in self._active)
        for request in self._active:
            for samples in (request.sampled, request.logprobs, request.versions):
                samples.clear()
        self._recompute()
        return num_discarded

    async def adopt(self, version: int) -> Mapping[str, int]:
        """See `PausableEngine.adopt`."""
        check_idle(version, 0 if self._pump.is_paused else len(self._active))
        await self._pump.wait_for_step()
        self.version = version
        if self._pictures is not None:
            self._pictures.renew()
        self._recompute()
        with boundary(EngineError, f"the engine cannot read the weights of version {version}"):
            return await self._pump.run(lambda: compute_checksums(self._model))

    async def resume(self) -> None:
        """See `PausableEngine.resume`."""
        self._is_draining = False
        self._pump.resume()
        if self._active:
            self._pump.start()

    async def close(self) -> None:
        """See `Engine.close`."""
        await self._pump.close()
        self.fail(EngineError("the engine was closed"))
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(EngineError("the engine was closed while the request waited for a slot"))

    def _recompute(self) -> None:
        """Forget all cached tokens: the tokens of each request so far become its prompt."""
        for request in self._active:
            request.conversation.cached.clear()
            request.conversation.version = self.version
            request.pending = request.prompt + request.sampled

    def _check(self, prompt: list[int], params: SamplingParams, session: Session) -> None:
        if self._pump.is_closed:
            raise EngineError(f"the engine is closed and rejected the request of '{session}'")
        if any(request.session == session for request in self._active):
            raise EngineError(f"request of '{session}': the session already has a request in progress; wait for it")
        room = self._cache.max_context - len(prompt)
        if not prompt:
            raise EngineError(f"request of '{session}' has an empty prompt; render at least one token")
        if params.max_tokens < 1:
            raise EngineError(f"request of '{session}' asks for max_tokens={params.max_tokens}; ask for at least 1")
        if room < params.max_tokens:
            raise EngineError(
                f"request of '{session}': prompt of {len(prompt)} tokens plus max_tokens={params.max_tokens} exceeds "
                f"engine.max_context={self._cache.max_context}; shorten the task or raise engine.max_context"
            )
        if min(prompt) < 0 or max(prompt) >= self._vocab_size:
            raise EngineError(
                f"request of '{session}' contains a token id outside the vocabulary of {self._vocab_size}: "
                f"{min(prompt)}..{max(prompt)}"
            )
        if params.grammar is not None:
            raise EngineError(
                f"request of '{session}' has a grammar, which this engine does not support; use engine.kind='paged'"
            )
        if params.stop and self._decode is None:
            raise EngineError(
                f"request of '{session}' has stop strings {params.stop} but the engine was built without `decode`"
            )

    async def _take_slot(self, session: Session) -> int:
        while not self._free:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        return self._free.pop(0)

    def plan(self) -> _Plan | None:
        """See `pump.Steps`: decoding requests first, then prompts, in order of arrival."""
        active = [r for r in self._active if r.has_begun or not self._is_draining]
        ready = [(r, 1) for r in active if len(r.pending) == 1][: self._max_batch_tokens]
        budget = self._max_batch_tokens - len(ready)
        for request in active:
            if budget <= 1:
                break
            if len(request.pending) > 1:
                count = min(len(request.pending), budget)
                ready.append((request, count))
                budget -= count
        ready.sort(key=lambda item: item[1] > 1)
        return ready or None

    @torch.inference_mode()
    def compute(self, plan: _Plan) -> _Drawn:
        """See `pump.Steps`."""
        ids: list[int] = []
        positions: list[int] = []
        runs: list[Run] = []
        chunks: list[Chunk] = []
        rows: list[int] = []
        for index, (request, count) in enumerate(plan):
            start = len(request.conversation.cached)
            runs.append((index, start, count, len(ids)))
            ids += request.pending[:count]
            positions += range(start, start + count)
            chunks.append(Chunk(request.conversation.slot, start, count))
            if count == len(request.pending):
                rows.append(len(ids) - 1)
        requests = [request for request, count in plan if count == len(request.pending)]
        num_padding = max(0, MIN_BATCH_ROWS - len(ids))
        rows += [rows[-1] if rows else 0] * (MIN_BATCH_ROWS - len(rows))
        device = self._model.device
        shown = [request.images for request, _ in plan]
        numbers = number_step(shown, runs, np.array(positions + [0] * num_padding))
        placed = None if self._pictures is None else self._pictures.place(shown, runs)
        logits = self._model(
            **show(self._model, torch.tensor([ids + [0] * num_padding], device=device), placed),
            position_ids=torch.from_numpy(numbers).to(device)[..., None, :],
            use_cache=False,
            logits_to_keep=torch.tensor(rows, device=device),
            attention_plan=CachedAttention(self._cache, chunks),
        ).logits[0][: len(requests)]
        if not requests:
            return _Drawn([], [], [])
        randoms = [request.uniforms[len(request.sampled)] for request in requests]
        token_ids, logprobs = sample_tokens(
            logits, [request.params for request in requests], torch.tensor(randoms, dtype=torch.float64, device=device)
        )
        return _Drawn(torch.isfinite(logits).all(-1).tolist(), token_ids.tolist(), logprobs.tolist())

    def settle(self, plan: _Plan, result: _Drawn) -> None:
        """See `pump.Steps`. Results of requests that were cancelled meanwhile are dropped."""
        self.num_computed_tokens += sum(count for _, count in plan)
        drawn = zip(result.is_finite, result.token_ids, result.logprobs, strict=True)
        for request, count in plan:
            draws = count == len(request.pending)
            is_finite, token, logprob = next(drawn) if draws else (True, 0, 0.0)
            if request not in self._active:
                continue
            request.has_begun = True
            known, cached = request.shown_as, request.conversation.cached
            new = enumerate(request.pending[:count], len(cached))
            cached += [known[at] if at < len(known) else token for at, token in new]
            del request.pending[:count]
            if not is_finite:
                num_tokens = len(request.conversation.cached)
                self._fail(request, f"logits are not finite after {num_tokens} tokens; the weights may have diverged")
            elif draws:
                self._append(request, token, logprob)

    def fail(self, error: EngineError) -> None:
        """See `pump.Steps`."""
        for request in tuple(self._active):
            request.conversation.cached.clear()
            self._fail(request, f"request of '{request.session}': {error}")

    def _remove(self, request: _Request) -> None:
        self._active = [other for other in self._active if other is not request]

    def _fail(self, request: _Request, message: str) -> None:
        self._remove(request)
        if not request.future.done():
            request.future.set_exception(EngineError(message))

    def _append(self, request: _Request, token: int, logprob: float) -> None:
        request.sampled.append(token)
        request.logprobs.append(logprob)
        request.versions.append(self.version)
        try:
            with looking_for_stop(request.session):
                reason = self._finish_reason(request)
        except EngineError as error:
            self._fail(request, str(error))
            return
        if reason is None:
            request.pending.append(token)
            return
        self._remove(request)
        if not request.future.done():
            request.future.set_result(
                Completion(
                    token_ids=to_ids(request.sampled),
                    logprobs=to_floats(request.logprobs),
                    finish_reason=reason,
                    version_first=request.versions[0],
                    version_last=request.versions[-1],
                    versions=to_ids(request.versions),
                )
            )

    def _finish_reason(self, request: _Request) -> FinishReason | None:
        params = request.params
        if request.sampled[-1] in params.stop_token_ids:
            return FinishReason.STOP
        if params.stop and self._decode is not None and completes_stop(request.sampled, params.stop, self._decode):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(request.sampled) >= params.max_tokens else None
