"""Continuous batching with paged, shared key-value memory.

Ties the parts together: requests come in as coroutines, the scheduler chooses what runs, the runner computes it, the
sampler draws. A request's results stay cached after it ends, so the next turn of its conversation, a sibling in its
group and any task with the same beginning compute only what is new.

Requests, the scheduler and the cache belong to the event loop; the arithmetic of a step runs in an executor of one
thread. A request that is cancelled during a step keeps its pages until the step ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.core.protocols import Interrupt, Receive
from turnwise.core.seeds import uniforms
from turnwise.core.types import (
    Completion,
    FinishReason,
    IntArray,
    Prompt,
    SamplingParams,
    Session,
    to_experts,
    to_floats,
    to_ids,
)
from turnwise.engines.admission import check_idle, check_request
from turnwise.engines.guided import GrammarCompiler, Guide
from turnwise.engines.paged.ahead import build_stage
from turnwise.engines.paged.drafts import GroupDrafts
from turnwise.engines.paged.drawing import Drawn
from turnwise.engines.paged.graphs import Record, record_cuda_graphs
from turnwise.engines.paged.prefix_cache import Node, PrefixCache
from turnwise.engines.paged.routing import note_experts
from turnwise.engines.paged.runner import build_runner
from turnwise.engines.paged.scheduler import Item, Plan, Request, Scheduler
from turnwise.engines.paged.seeing import SeenCounts
from turnwise.engines.paged.step import Computed, Failed, compute_step
from turnwise.engines.pump import Pump
from turnwise.engines.stops import STOP_TAIL_TOKENS, completes_stop, looking_for_stop
from turnwise.models.paths import is_fast


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """Counts since the engine was built."""

    num_steps: int
    num_computed_tokens: int
    """Tokens run through the model, padding not counted."""
    num_reused_tokens: int
    """Tokens that requests needed and found in the cache."""
    num_stale_tokens: int
    """Reused tokens that older weights computed; 0 unless `reuse_stale_cache`."""
    num_sampled_tokens: int
    num_drafted_tokens: int
    """Drafted tokens."""
    num_accepted_tokens: int
    """Drafted tokens that were then sampled."""
    num_preemptions: int
    num_evicted_pages: int
    num_held_pages: int
    """Pages that requests use now."""
    num_restarted_tokens: int
    """Sampled tokens thrown away because weights changed (`interrupt = "restart"`)."""
    num_open_requests: int
    """Requests waiting or being sampled now."""
    computing_s: float
    """Seconds spent computing steps."""
    num_encoded_pictures: int = 0
    """Pictures that the vision tower encoded."""
    num_reused_pictures: int = 0
    """Pictures that a step needed and whose features were known."""
    num_image_places: int = 0
    """Computed tokens that stand for pictures."""
    encode_s: float = 0.0
    """Seconds spent encoding pictures; part of `computing_s` unless they are encoded ahead."""


class PagedEngine:
    """Implements `core.protocols.PausableEngine`. Belongs to one event loop at a time, the one that uses it."""

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
        encode_ahead: bool = False,
        num_threads: int = 1,
        executor: ThreadPoolExecutor | None = None,
        grammars: GrammarCompiler | None = None,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        """Build an engine for `model` on the path that it takes (`models.paths`).

        Args:
            max_concurrency: requests sampled at once; more wait.
            max_context: most tokens of a prompt and its completion together.
            max_batch_tokens: most tokens of one step; longer prompts are computed in chunks.
            cache_tokens: tokens the cache holds, in pages of `page_size` (16, 32 or 64); None is room for
                `max_concurrency` requests of `max_context`.
            fused: None runs the packed decoder where the family has one, False the model's modules, exact in every bit.
            attention: "gather" copies the pages a step attends to; "flex" reads them in place with kernels that torch
                compiles for a GPU, eagerly and slowly elsewhere. Both agree up to rounding; only the former is exact.
            cuda_graphs: record steps that only decode and repeat them; with "flex", packed weights and a GPU only.
            recorder: builds the recorder of these graphs, again for new weights.
            reuse_stale_cache: keep cached tokens across versions. Off, stale reuse cannot happen; on, it is counted.
            max_draft_tokens: most tokens of a reply guessed at once from what the members of its group wrote, where a
                step is small; 0 guesses nothing. What is sampled stays the same, token for token and bit for bit.
            encode_ahead: encode arriving pictures in a thread of their own; what is sampled stays the same.
            num_threads: torch threads, 0 for one per core. With 1, no bit of what is sampled depends on timing.
            executor: computes the steps in one thread, shut down by the caller; None builds one with `num_threads`.
            grammars: compiles grammars; None refuses requests that have one.
            decode: token ids to text; None refuses requests that have stop strings.
        """
        if page_size not in (16, 32, 64):
            raise EngineError(f"page_size={page_size} must be 16, 32 or 64, so that pages fill every attention span")
        num_pages = (
            max_concurrency * -(-max_context // page_size) if cache_tokens is None else -(-cache_tokens // page_size)
        )
        limits = {"max_concurrency": max_concurrency, "max_context": max_context}
        kernels: dict[str, Any] = {"fused": fused, "attention": attention, "cuda_graphs": cuda_graphs}
        pages = {"num_pages": num_pages, "page_size": page_size}
        self._runner = build_runner(model, **limits, **pages, **kernels, recorder=recorder)
        if not is_fast(model):
            max_draft_tokens = 0
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
        self._conversations: dict[Session, Node] = {}
        self._cancelled: list[Request] = []
        """Requests cancelled during a step; their pages may be written until it ends."""
        self._released: list[Session] = []
        """Conversations released during a step; the runner may be reading them until it ends."""
        self._pump: Pump[Plan, list[Computed | Failed]] = Pump(self, num_threads=num_threads, executor=executor)
        self._ahead = build_stage(self._runner.pictures, num_threads=num_threads) if encode_ahead else None
        self._stamp = self._runner.weights_stamp()
        self.version = 0
        self._num_steps = self._num_computed = self._num_sampled = self._num_drafted = self._num_accepted = 0
        self._num_restarted = 0

    @property
    def num_computed_tokens(self) -> int:
        """Tokens run through the model since the start, each position once per version unless it was evicted."""
        return self._num_computed

    @property
    def is_computing(self) -> bool:
        """Whether a step is computed right now."""
        return self._pump.is_computing

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
            num_restarted_tokens=self._num_restarted,
            num_open_requests=scheduler.num_active,
            computing_s=self._pump.computing_s,
            **asdict(SeenCounts() if self._runner.pictures is None else self._runner.pictures.counts),
        )

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`. Waits in a queue when `max_concurrency` requests are being sampled."""
        return await self._sample(Prompt(token_ids=prompt_ids), params, session, None)

    async def generate_seeing(self, prompt: Prompt, params: SamplingParams, *, session: Session) -> Completion:
        """See `SeeingEngine.generate_seeing`."""
        return await self._sample(prompt, params, session, None)

    async def stream(
        self, prompt_ids: IntArray, params: SamplingParams, *, session: Session, receive: Receive | None
    ) -> Completion:
        """See `StreamingEngine.stream`."""
        return await self._sample(Prompt(token_ids=prompt_ids), params, session, receive)

    async def _sample(
        self, shown: Prompt, params: SamplingParams, session: Session, receive: Receive | None
    ) -> Completion:
        if self._pump.is_closed:
            raise EngineError(f"the engine is closed and rejected the request of '{session}'")
        if shown.images and self._runner.pictures is None:
            raise EngineError(
                f"request of '{session}' shows {len(shown.images)} pictures, but the model reads text only; use a "
                "vision-language model"
            )
        prompt = shown.token_ids.tolist()
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
        guide = self._start_guide(params)
        if self._ahead is not None:
            await self._ahead.encode(span.digest for span in shown.images)
            if self._pump.is_closed:
                raise EngineError(f"the engine was closed while it encoded the pictures of '{session}'")
        request = Request(session, prompt, len(prompt), params, uniforms(params.seed, params.max_tokens), guide)
        request.receive, request.images = receive, shown.images
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._futures[request] = future
        self._scheduler.submit(request)
        self._pump.start()
        try:
            return await future
        except asyncio.CancelledError:
            if self._futures.pop(request, None) is not None:
                if self._pump.is_computing:
                    self._cancelled.append(request)
                else:
                    self._abandon(request)
            raise

    async def release(self, session: Session) -> None:
        """See `Engine.release`. Pages that the conversation does not share are evicted first."""
        node = self._conversations.pop(session, None)
        self._released.append(session)
        if not self._pump.is_computing:
            self._forget_released()
        if node is not None:
            self._scheduler.cache.retire(node)

    async def pause(self, interrupt: Interrupt = "continue") -> int:
        """See `PausableEngine.pause`. Pausing a paused engine changes nothing."""
        if interrupt == "finish" and not self._pump.is_paused:
            self._scheduler.is_draining = True
            await self._pump.drain()
        await self._pump.pause()
        return self._restart_requests() if interrupt == "restart" else 0

    async def adopt(self, version: int) -> Mapping[str, int]:
        """See `PausableEngine.adopt`."""
        check_idle(version, 0 if self._pump.is_paused else len(self._futures))
        await self._pump.wait_for_step()
        self.version = version
        self._renew()
        with boundary(EngineError, f"the engine cannot pack the weights of version {version}"):
            return await self._pump.run(self._runner.compute_checksums)

    async def resume(self) -> None:
        """See `PausableEngine.resume`."""
        self._scheduler.is_draining = False
        self._pump.resume()
        if self._futures:
            self._pump.start()

    async def close(self) -> None:
        """See `Engine.close`."""
        await self._pump.close()
        if self._ahead is not None:
            self._ahead.close()
        self.fail(EngineError("the engine was closed"))

    def plan(self) -> Plan | None:
        """See `pump.Steps`."""
        if not self._futures:
            return None
        if self._runner.weights_stamp() != self._stamp:
            self._renew()
        plan = self._scheduler.plan()
        return plan if plan.items else None

    def compute(self, plan: Plan) -> list[Computed | Failed]:
        """See `pump.Steps`."""
        return compute_step(self._runner, plan)

    def settle(self, plan: Plan, result: list[Computed | Failed]) -> None:
        """See `pump.Steps`: commit the items that ran, append drawn tokens, and drop requests that were cancelled
        meanwhile."""
        self._num_steps += 1
        self._forget_released()
        cancelled, self._cancelled = self._cancelled, []
        for request in cancelled:
            self._abandon(request)
        for each in result:
            if isinstance(each, Failed):
                if each.item.request in self._futures:
                    self._fail(each.item.request, each.error)
            else:
                self._settle_items(each)

    def fail(self, error: EngineError) -> None:
        """See `pump.Steps`."""
        for request in tuple(self._futures):
            self._fail(request, EngineError(f"request of '{request.session}': {error}"))

    def _forget_released(self) -> None:
        for session in self._released:
            self._runner.forget(session)
        self._released.clear()

    def _settle_items(self, computed: Computed) -> None:
        items = computed.items
        self._num_computed += sum(item.count for item in items)
        self._num_drafted += sum(len(item.draft) for item in items)
        sampled = list(zip([item for item in items if item.samples], computed.drawn, strict=True))
        for item, (first, *_) in sampled:
            if first.error is not None and item.request in self._futures:
                self._fail(item.request, first.error)
        running = [item for item in items if item.request.lease is not None]
        self._scheduler.commit(running)
        self._note_experts([item.request for item in running])
        for item, row in sampled:
            if item.request.lease is not None:
                self._take(item, row)

    def _start_guide(self, params: SamplingParams) -> Guide | None:
        if params.grammar is None or self._grammars is None:
            return None
        with boundary(EngineError, "the engine cannot start the grammar"):
            return self._grammars.start(params.grammar, params.stop_token_ids)

    def _restart_requests(self) -> int:
        """Reset every request to its prompt. Returns the number of sampled tokens that this throws away."""
        self._scheduler.restart()
        num_discarded = 0
        for request in tuple(self._scheduler.waiting):
            if request.num_sampled:
                num_discarded += request.num_sampled
                if request.receive is not None:
                    self._fail(request, EngineError(f"the weights changed while '{request.session}' was streamed"))
                    continue
                request.discard_samples()
                request.guide = self._start_guide(request.params)
        self._num_restarted += num_discarded
        return num_discarded

    def _renew(self) -> None:
        """Renew packed weights and, unless stale reuse is allowed, forget every cached token."""
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

    def _take(self, item: Item, drawn: Sequence[Drawn]) -> None:
        """Append the drawn tokens, up to the first that differs from the item's draft."""
        request = item.request
        try:
            for place, each in enumerate(drawn):
                if each.error is not None:
                    raise each.error
                if place:
                    # The drafted token before this one was right, so its keys and values are too.
                    request.num_computed += 1
                    self._num_accepted += 1
                with looking_for_stop(request.session):
                    reason = self._append(request, each)
                if request.receive is not None:
                    request.receive((each.token,))
                if reason is not None:
                    self._finish(request, reason)
                if reason is not None or place == len(item.draft) or each.token != item.draft[place]:
                    return
        except EngineError as error:
            self._fail(request, error)

    def _append(self, request: Request, drawn: Drawn) -> FinishReason | None:
        """Append one token. Returns why it is the last, or None."""
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
            tail = request.tokens[max(request.num_prompt, len(request.tokens) - STOP_TAIL_TOKENS) :]
            if completes_stop(tail, params.stop, self._decode):
                return FinishReason.STOP
        return FinishReason.LENGTH if request.num_sampled >= params.max_tokens else None

    def _note_experts(self, requests: Sequence[Request]) -> None:
        experts = self._runner.experts
        if experts is not None and requests:
            note_experts(requests, experts, self._scheduler.cache.page_size)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        self._note_experts([request])
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
                    experts=to_experts(np.concatenate(request.experts)) if request.experts else None,
                )
            )

    def _fail(self, request: Request, error: EngineError) -> None:
        self._abandon(request)
        future = self._futures.pop(request, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def _abandon(self, request: Request) -> None:
        """Drop a request. Pages that only it wrote may hold anything, so they are zeroed."""
        pages = self._scheduler.abandon(request)
        if pages:
            self._runner.scrub(pages)
