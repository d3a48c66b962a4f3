"""Chooses which tokens run in the next engine step: a state machine over requests, without tensors.

A request is waiting or running. Running requests hold pages. Each step takes one token of every decoding request, then
as many prompt or observation tokens of running ones as the batch allows, then admits waiting ones in order of arrival.
A request whose beginning another one is computing waits for it instead of computing it twice. When memory is short the
latest arrival goes back to the queue with all its tokens; nothing sampled is lost."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from turnwise.core.keys import Span, is_text, to_keys
from turnwise.core.protocols import Receive
from turnwise.core.types import SamplingParams, Session
from turnwise.engines.guided import Guide
from turnwise.engines.paged.drafts import GroupDrafts
from turnwise.engines.paged.prefix_cache import Lease, Node, PrefixCache

MAX_DRAFTING_TOKENS = 32
"""Most tokens of a step, drafts included, up to which tokens are drafted."""


@dataclass(slots=True, eq=False)
class Request:
    """One completion being sampled."""

    session: Session
    tokens: list[int]
    """Prompt and sampled tokens."""
    num_prompt: int
    params: SamplingParams
    uniforms: np.ndarray
    """`[max_tokens]` float64, one random number per token to sample."""
    guide: Guide | None = None
    """The request's position in its grammar; None without one."""
    logprobs: list[float] = field(default_factory=list)
    full_logprobs: list[float] = field(default_factory=list)
    """Log-probabilities without the grammar; empty for a request that has none."""
    versions: list[int] = field(default_factory=list)
    """Weight version that sampled each token."""
    experts: list[np.ndarray] = field(default_factory=list)
    """Chunks of experts `[n, layers, k]` uint8, together for its first `num_noted` tokens; empty for a dense model."""
    num_noted: int = 0
    """Number of leading tokens whose experts are known."""
    num_computed: int = 0
    """Number of leading tokens whose keys and values are in the cache."""
    lease: Lease | None = None
    """The lease on its pages; None while waiting."""
    keys: list[int] = field(default_factory=list)
    """One hash per page of the prompt, over all tokens up to the page's end. Equal prompts have equal keys."""
    computing: list[int] = field(default_factory=list)
    """Keys of the pages that this request computes and for which others wait."""
    receive: Receive | None = None
    """Gets new tokens as they are sampled; None if nobody wants them before the end."""
    images: tuple[Span, ...] = ()
    """Places of pictures in the prompt."""

    @property
    def shared_by(self) -> list[int]:
        """Its token keys for shared pages, which distinguish tokens with equal ids."""
        return to_keys(self.tokens, self.images)

    @property
    def max_length(self) -> int:
        """Most tokens that the cache ever holds for it: the last sampled token never runs."""
        return self.num_prompt + self.params.max_tokens - 1

    @property
    def num_sampled(self) -> int:
        """Tokens sampled so far."""
        return len(self.logprobs)

    def discard_samples(self) -> None:
        """Reset the request to its prompt. The caller replaces `guide`."""
        del self.tokens[self.num_prompt :]
        self.logprobs.clear()
        self.full_logprobs.clear()
        self.versions.clear()
        self.forget_experts()

    def forget_experts(self) -> None:
        """Forget the experts of tokens that will be computed again, with other weights, before the next one is
        drawn."""
        self.experts.clear()
        self.num_noted = 0


@dataclass(frozen=True, slots=True)
class Item:
    """`count` tokens of `request` from position `start` that run in this step; the last ones are drafts."""

    request: Request
    start: int
    count: int
    draft: tuple[int, ...] = ()
    """Drafted tokens after the request's last one."""

    @property
    def samples(self) -> bool:
        """Whether the item reaches the request's last token, so that the next one is sampled."""
        return self.start + self.count - len(self.draft) == len(self.request.tokens)


@dataclass(frozen=True, slots=True)
class Plan:
    """One engine step."""

    items: list[Item]
    copies: list[tuple[int, int]]
    """Page copies `(source, destination)` to make first."""


class Scheduler:
    """Decides what runs; computes nothing."""

    def __init__(
        self, cache: PrefixCache, *, max_running: int, max_batch_tokens: int, drafts: GroupDrafts | None = None
    ) -> None:
        """Without `drafts` (None) no tokens are drafted."""
        self.cache = cache
        self.running: list[Request] = []
        """Running requests in order of arrival."""
        self.waiting: deque[Request] = deque()
        self.num_reused_tokens = 0
        self.num_stale_tokens = 0
        self.num_preemptions = 0
        self.is_draining = False
        """Whether requests without a sampled token stay in the queue."""
        self._max_running = max_running
        self._max_batch_tokens = max_batch_tokens
        self._drafts = drafts
        self._computing: Counter[int] = Counter()

    @property
    def num_active(self) -> int:
        """Requests waiting or running."""
        return len(self.running) + len(self.waiting)

    def submit(self, request: Request) -> None:
        """Queue a request. Its prompt and `max_tokens` must fit into the cache on their own."""
        request.keys = page_keys(request.shared_by, self.cache.page_size)
        self.waiting.append(request)

    def plan(self) -> Plan:
        """Return the next step. It is empty only when nothing is active, or, while draining, when nothing has begun."""
        items: list[Item] = []
        budget = self._max_batch_tokens
        for decoding in (True, False):
            for request in tuple(self.running):
                count = min(len(request.tokens) - request.num_computed, budget)
                if (
                    request.lease is None
                    or count < 1
                    or (len(request.tokens) - request.num_computed == 1) is not decoding
                ):
                    continue
                if self._make_room(request, request.num_computed + count):
                    items.append(Item(request, request.num_computed, count))
                    budget -= count
        items = [item for item in items if item.request.lease is not None]
        copies: list[tuple[int, int]] = []
        while self.waiting and budget > 0 and len(self.running) < self._max_running:
            admissible = next(
                (
                    r
                    for r in self.waiting
                    if self._computing.keys().isdisjoint(r.keys) and (r.num_sampled or not self.is_draining)
                ),
                None,
            )
            if admissible is None or not self._admit(admissible, copies):
                break
            request = admissible
            count = min(len(request.tokens) - request.num_computed, budget)
            assert request.lease is not None
            if not self.cache.extend(request.lease, request.num_computed + count):
                raise AssertionError("a request was admitted without room for it")
            items.append(Item(request, request.num_computed, count))
            budget -= count
        return Plan(self._with_drafts(items, budget), copies)

    def commit(self, items: Sequence[Item]) -> None:
        """Record that the items ran: their tokens are in the cache, and finished prompts can be shared."""
        for item in items:
            request = item.request
            assert request.lease is not None
            finished = item.samples and request.computing
            request.num_computed += item.count - len(item.draft)
            if finished:
                self.cache.register(request.lease, request.shared_by, request.num_computed)
                self._end_computing(request)

    def finish(self, request: Request) -> Node:
        """End a running request that has its last token. Its tokens stay cached; returns the node where its
        conversation continues."""
        assert request.lease is not None
        self.running.remove(request)
        self.cache.register(request.lease, request.shared_by, request.num_computed)
        if self._drafts is not None:
            self._drafts.read(request.session, request.shared_by)
        node = request.lease.node
        self._drop(request)
        return node

    def abandon(self, request: Request) -> list[int]:
        """Drop a request that failed or was cancelled. Returns the pages that only it wrote, which may hold non-finite
        numbers."""
        if request.lease is None:
            self.waiting.remove(request)
            return []
        self.running.remove(request)
        pages = self.cache.discard(request.lease)
        self._drop(request)
        return pages

    def restart(self) -> None:
        """Send every running request back to the queue; none of its cached tokens is kept. Used when weights change.

        A token's experts are kept if a token was sampled after it; the others will be recorded with the new weights."""
        for request in reversed(self.running):
            self._drop(request)
            self.waiting.appendleft(request)
        self.running.clear()
        for request in self.waiting:
            if not request.num_sampled:
                request.forget_experts()

    def keep_stale(self, version: int) -> None:
        """Keep the cache although the weights changed: the tokens that running requests hold now count as stale."""
        self.cache.version = version
        self.num_stale_tokens += sum(request.num_computed for request in self.running)

    def _with_drafts(self, items: list[Item], budget: int) -> list[Item]:
        """Add drafts to decoding requests, as long as the step stays small and the drafts fit into the pages they have.

        A step of few tokens costs little more with a few further ones; a full one costs for each. A request with a
        grammar gets none."""
        if self._drafts is None:
            return items
        spare = min(budget, MAX_DRAFTING_TOKENS - sum(item.count for item in items))
        share = spare // max(1, sum(item.samples and item.count == 1 for item in items))
        if share < 1:
            return items
        drafted = []
        for item in items:
            request = item.request
            if item.samples and item.count == 1 and request.guide is None and request.lease is not None:
                room = min(len(request.lease.pages) * self.cache.page_size, request.max_length) - len(request.tokens)
                drafted_keys = self._drafts.draft(request.session, request.shared_by, min(share, room))
                draft = tuple(takewhile(is_text, drafted_keys))
                item = Item(request, item.start, 1 + len(draft), draft)
            drafted.append(item)
        return drafted

    def _admit(self, request: Request, copies: list[tuple[int, int]]) -> bool:
        cache = self.cache
        lease, copy = cache.acquire(request.shared_by)
        needed = -(-min(len(request.tokens) + 1, request.max_length) // cache.page_size) - len(lease.pages)
        if self.running and not self._has_room(needed):
            cache.release(lease)
            return False
        self.waiting.remove(request)
        self.running.append(request)
        if copy is not None:
            copies.append(copy)
        request.lease = lease
        request.num_computed = lease.num_reused
        # A request that lacks only the token that must run to be sampled from computes nothing that others could wait
        # for.
        lacking = len(request.tokens) - lease.num_reused
        request.computing = request.keys[lease.num_reused // cache.page_size :] if lacking > 1 else []
        self._computing.update(request.computing)
        self.num_reused_tokens += lease.num_reused
        self.num_stale_tokens += lease.num_stale
        return True

    def _has_room(self, num_pages: int) -> bool:
        """Return whether a newcomer can get `num_pages` while every running request that may grow can still get one."""
        spare = self.cache.num_available - num_pages
        if spare >= len(self.running):
            return True
        size = self.cache.page_size
        return spare >= sum(r.lease is not None and len(r.lease.pages) * size < r.max_length for r in self.running)

    def _make_room(self, request: Request, num_tokens: int) -> bool:
        """Allocate pages for `num_tokens`, preempting the latest arrivals while memory is short. Returns False if that
        is the request itself."""
        assert request.lease is not None
        while not self.cache.extend(request.lease, num_tokens):
            victim = self.running.pop()
            assert victim.lease is not None
            self.num_preemptions += 1
            if not victim.computing:
                self.cache.register(victim.lease, victim.shared_by, victim.num_computed)
            self._drop(victim)
            self.waiting.appendleft(victim)
            if victim is request:
                return False
        return True

    def _drop(self, request: Request) -> None:
        assert request.lease is not None
        self.cache.release(request.lease)
        self._end_computing(request)
        request.lease = None
        request.num_computed = 0

    def _end_computing(self, request: Request) -> None:
        for key in request.computing:
            self._computing[key] -= 1
            if not self._computing[key]:
                del self._computing[key]
        request.computing = []


def page_keys(tokens: Sequence[int], page_size: int) -> list[int]:
    """Return one hash per page of `tokens` (the last page may be short), each over all tokens up to the page's end."""
    keys: list[int] = []
    before = 0
    for at in range(0, len(tokens), page_size):
        before = hash((before, *tokens[at : at + page_size]))
        keys.append(before)
    return keys
