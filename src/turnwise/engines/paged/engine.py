"""Continuous batching with paged, shared key-value memory, on the trainer's own parameters.

Ties the parts together: requests come in as coroutines, the scheduler says what runs, the runner computes it, the
sampler draws. What a request computed stays cached after it ends, so the next turn of its conversation, a sibling in
its group and any task with the same beginning compute only what is new. Knows nothing about text except to find stop
strings, and nothing about tasks or rewards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.core.seeds import uniforms
from turnwise.core.types import Completion, FinishReason, IntArray, SamplingParams, to_floats, to_ids
from turnwise.engines.guided import GrammarCompiler
from turnwise.engines.paged.admission import check_request
from turnwise.engines.paged.drafts import GroupDrafts
from turnwise.engines.paged.drawing import Drawn, draw_tokens
from turnwise.engines.paged.graphs import Record, record_cuda_graphs
from turnwise.engines.paged.prefix_cache import Node, PrefixCache
from turnwise.engines.paged.runner import ModelRunner
from turnwise.engines.paged.scheduler import Item, Request, Scheduler

# Longest text tail, in tokens, searched for a stop string.
STOP_TAIL_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """Counts since the engine was built."""

    num_steps: int
    num_computed_tokens: int
    """Tokens run through the model, padding not counted."""
    num_reused_tokens: int
    """Tokens a request needed and found in the cache."""
    num_stale_tokens: int
    """Of the reused tokens, those computed with older weights; 0 unless `reuse_stale_cache`."""
    num_sampled_tokens: int
    num_drafted_tokens: int
    """Tokens guessed ahead."""
    num_accepted_tokens: int
    """Of these, those that were sampled."""
    num_preemptions: int
    num_evicted_pages: int
    num_held_pages: int
    """Pages in use by a request now."""


class PagedEngine:
    """Implements `core.protocols.Engine`. One event loop, one thread; torch does the parallel work."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_concurrency: int,
        max_context: int,
        max_batch_tokens: int = 1024,
        cache_tokens: int | None = None,
        page_size: int = 32,
        fused: bool | None = None,
        attention: Literal["gather", "flex"] = "gather",
        cuda_graphs: bool = False,
        recorder: Callable[[], Record] = record_cuda_graphs,
        reuse_stale_cache: bool = False,
        max_draft_tokens: int = 0,
        grammars: GrammarCompiler | None = None,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        """An engine for `model`, which must have been built with Turnwise's attention (else EngineError).

        Args:
            max_concurrency: requests sampled at once; more wait.
            max_context: most tokens of a prompt and its completion together.
            max_batch_tokens: most tokens of one step; longer prompts are computed in chunks. A GPU wants more than the
            default.
            cache_tokens: tokens the cache holds; None is room for `max_concurrency` requests of `max_context`.
            page_size: tokens per page; 16, 32 or 64.
            fused: run the packed decoder (None: where the model's family has one) or, with False, the model's own
            modules, whose
                log-probabilities are those of a packed forward pass with the same attention rows in every bit.
            attention: "gather" copies the pages a step attends to; "flex" reads them in place with kernels that torch
            compiles for a GPU,
                eagerly and slowly elsewhere. Both to rounding the same; only the former is exact.
            cuda_graphs: record steps that only decode and repeat them; with "flex", the packed decoder and a GPU, else
            EngineError.
            recorder: makes what records these, anew for new weights.
            reuse_stale_cache: keep cached tokens across versions. Off, stale reuse cannot happen; on, it is counted.
            max_draft_tokens: most tokens of a reply guessed at once from what the members of its group wrote, where a
            step is small;
                0 guesses nothing. What is sampled stays the same, token for token and bit for bit.
            grammars: compiles grammars; a request with one is refused without it.
            decode: token ids to text; needed only for stop strings, a request with any is refused without it.
        """
        if page_size not in (16, 32, 64):
            raise EngineError(
                f"page_size={page_size} must be 16, 32 or 64, so that whole pages fill every attention span"
            )
        num_pages = (
            max_concurrency * -(-max_context // page_size) if cache_tokens is None else -(-cache_tokens // page_size)
        )
        self._runner = ModelRunner(
            model,
            num_pages=num_pages,
            page_size=page_size,
            max_context=max_context,
            fused=fused,
            attention=attention,
            cuda_graphs=cuda_graphs,
            recorder=recorder,
        )
        self._drafts = (
            GroupDrafts(max_draft_tokens=max_draft_tokens, max_groups=max_concurrency) if max_draft_tokens else None
        )
        self._scheduler = Scheduler(
            PrefixCache(num_pages=num_pages, page_size=page_size),
            max_running=max_concurrency,
            max_batch_tokens=max_batch_tokens,
            drafts=self._drafts,
        )
        self._max_context = max_context
        self._reuse_stale_cache = reuse_stale_cache
        self._grammars = grammars
        self._decode = decode
        self._futures: dict[Request, asyncio.Future[Completion]] = {}
        self._conversations: dict[str, Node] = {}
        self._pump: asyncio.Task[None] | None = None
        self._paused = False
        self._stamp = self._runner.weights_stamp()
        self.version = 0
        self._num_steps = self._num_computed = self._num_sampled = self._num_drafted = self._num_accepted = 0

    @property
    def num_computed_tokens(self) -> int:
        """Tokens run through the model since the start, each position once per version unless it was evicted."""
        return self._num_computed

    @property
    def is_fused(self) -> bool:
        """Whether the packed decoder runs instead of the model's modules."""
        return self._runner.is_fused

    def statistics(self) -> EngineStatistics:
        """Counts so far."""
        scheduler = self._scheduler
        return EngineStatistics(
            num_steps=self._num_steps,
            num_computed_tokens=self._num_computed,
            num_reused_tokens=scheduler.num_reused_tokens,
            num_stale_tokens=scheduler.num_stale_tokens,
            num_sampled_tokens=self._num_sampled,
            num_drafted_tokens=self._num_drafted,
            num_accepted_tokens=self._num_accepted,
            num_preemptions=scheduler.num_preemptions,
            num_evicted_pages=scheduler.cache.num_evicted,
            num_held_pages=scheduler.cache.num_held,
        )

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: str) -> Completion:
        """See `Engine.generate`. Waits its turn when `max_concurrency` requests are being sampled."""
        prompt = prompt_ids.tolist()
        cache = self._scheduler.cache
        check_request(
            prompt,
            params,
            session,
            max_context=self._max_context,
            cache_tokens=cache.num_pages * cache.page_size,
            vocab_size=self._runner.vocab_size,
            knows_text=self._decode is not None,
            knows_grammars=self._grammars is not None,
        )
        guide = None
        if params.grammar is not None and self._grammars is not None:
            guide = self._grammars.start(params.grammar, params.stop_token_ids)
        request = Request(session, prompt, len(prompt), params, uniforms(params.seed, params.max_tokens), guide)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._futures[request] = future
        self._scheduler.submit(request)
        self._start()
        try:
            return await future
        except asyncio.CancelledError:
            if self._futures.pop(request, None) is not None:
                self._abandon(request)
            raise

    async def release(self, session: str) -> None:
        """See `Engine.release`. What the conversation shares with nobody is the first to be evicted."""
        node = self._conversations.pop(session, None)
        if node is not None:
            self._scheduler.cache.retire(node)

    def adopt(self, version: int) -> None:
        """The parameters changed in place: later tokens carry `version`, and no cache of older weights is read again.

        Raises EngineError while requests are being sampled, unless the engine is paused: then they go on under the new
        weights, their tokens so far recomputed."""
        if self._scheduler.num_active and not self._paused:
            raise EngineError(
                f"weights changed to version {version} while {self._scheduler.num_active} requests are being sampled; "
                "wait for them or pause the engine first"
            )
        self.version = version
        self._renew()

    def pause(self) -> None:
        """Stop at the next token boundary. Requests keep what they sampled; new ones queue."""
        self._paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False
        if self._futures:
            self._start()

    async def close(self) -> None:
        """Fail what is still being sampled and stop."""
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
        for request in tuple(self._futures):
            self._fail(request, EngineError(f"the engine was closed while {request.session!r} was being sampled"))

    def _renew(self) -> None:
        """Packed weights, and unless stale reuse is allowed every cached token, belong to the past."""
        self._stamp = self._runner.weights_stamp()
        self._runner.renew()
        if self._drafts is not None:
            self._drafts.clear()
        cache = self._scheduler.cache
        if self._reuse_stale_cache:
            self._scheduler.keep_stale(self.version)
            return
        self._scheduler.restart()
        self._conversations.clear()
        cache.clear(self.version)

    def _start(self) -> None:
        if not self._paused and (self._pump is None or self._pump.done()):
            self._pump = asyncio.create_task(self._run())

    async def _run(self) -> None:
        # Whoever asks in the same turn of the loop as the first request shares its first step.
        await asyncio.sleep(0)
        while self._futures and not self._paused:
            if self._runner.weights_stamp() != self._stamp:
                self._renew()
            plan = self._scheduler.plan()
            if plan.copies:
                self._runner.memory.copy_pages(plan.copies)
            self._step(plan.items)
            self._num_steps += 1
            # Two turns of the loop: one wakes the finished requests, one lets their environments answer.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _step(self, items: Sequence[Item]) -> None:
        """Run, commit and sample. A step that fails is repeated in halves, so that what cannot run fails alone."""
        try:
            with boundary(EngineError, "the engine step failed"):
                logits = self._runner.run(items)
                sampling = [item for item in items if item.samples]
                drawn = draw_tokens(sampling, logits)
        except EngineError as error:
            if len(items) > 1:
                self._step(items[: len(items) // 2])
                self._step(items[len(items) // 2 :])
            else:
                self._fail(items[0].request, error)
            return
        self._num_computed += sum(item.count for item in items)
        self._num_drafted += sum(len(item.draft) for item in items)
        for item, (first, *_) in zip(sampling, drawn, strict=True):
            if first.error is not None:
                self._fail(item.request, first.error)
        self._scheduler.commit([item for item in items if item.request.lease is not None])
        for item, row in zip(sampling, drawn, strict=True):
            if row[0].error is None:
                self._take(item, row)

    def _take(self, item: Item, drawn: Sequence[Drawn]) -> None:
        """Append the tokens drawn, up to the first that its draft did not foresee."""
        request = item.request
        try:
            for place, each in enumerate(drawn):
                if each.error is not None:
                    raise each.error
                if place:
                    # The drafted token before this one was right, so its keys and values are too.
                    request.num_computed += 1
                    self._num_accepted += 1
                with boundary(EngineError, f"looking for the end of the reply of {request.session!r}"):
                    reason = self._append(request, each)
                if reason is not None:
                    self._finish(request, reason)
                if reason is not None or place == len(item.draft) or each.token != item.draft[place]:
                    return
        except EngineError as error:
            self._fail(request, error)

    def _append(self, request: Request, drawn: Drawn) -> FinishReason | None:
        """Record one token; why it is the last, or None."""
        request.tokens.append(drawn.token)
        request.logprobs.append(drawn.logprob)
        request.versions.append(self.version)
        self._num_sampled += 1
        if drawn.full_logprob is not None:
            request.full_logprobs.append(drawn.full_logprob)
        reason = self._finish_reason(request)
        if reason is None and request.guide is not None and request.guide.advance(drawn.token):
            return FinishReason.STOP
        return reason

    def _finish_reason(self, request: Request) -> FinishReason | None:
        params = request.params
        if request.tokens[-1] in params.stop_token_ids:
            return FinishReason.STOP
        if params.stop and self._decode is not None:
            tail = self._decode(request.tokens[max(request.num_prompt, len(request.tokens) - STOP_TAIL_TOKENS) :])
            if any(text in tail for text in params.stop):
                return FinishReason.STOP
        return FinishReason.LENGTH if request.num_sampled >= params.max_tokens else None

    def _finish(self, request: Request, reason: FinishReason) -> None:
        self._conversations[request.session] = self._scheduler.finish(request)
        future = self._futures.pop(request, None)
        if future is not None and not future.done():
            future.set_result(
                Completion(
                    token_ids=to_ids(request.tokens[request.num_prompt :]),
                    logprobs=to_floats(request.logprobs),
                    finish_reason=reason,
                    version_first=request.versions[0],
                    version_last=request.versions[-1],
                    versions=to_ids(request.versions),
                    full_logprobs=to_floats(request.full_logprobs) if request.full_logprobs else None,
                )
            )

    def _fail(self, request: Request, error: EngineError) -> None:
        self._abandon(request)
        future = self._futures.pop(request, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def _abandon(self, request: Request) -> None:
        """Forget a request. Pages that only it wrote may hold anything, so they are zeroed."""
        pages = self._scheduler.abandon(request)
        if pages:
            self._runner.memory.scrub(pages)
