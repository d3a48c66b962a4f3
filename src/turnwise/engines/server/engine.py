"""The engine of a run that samples on servers named by URL. Only this run uses them while it lasts; they hold its
weights.

Weights arrive as in `engines/vllm`: they are written to a folder that the servers see, read and checksummed where the
server can, loaded, and verified by a canary. A server that goes away, comes back with other weights, or fails to load
gets no requests until it has loaded and verified the present ones; its unfinished replies go to another server.

An interrupt uses two calls that every server has: abort a request, keeping what it sampled, and request the rest with
that reply appended to the prompt."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from transformers import PreTrainedModel

from turnwise.core.errors import EngineError
from turnwise.core.protocols import Interrupt
from turnwise.core.types import Completion, FinishReason, IntArray, SamplingParams, Session, to_floats, to_ids
from turnwise.engines.admission import check_idle, check_plain_request
from turnwise.engines.canary import NUM_CANARY_TOKENS, Canary, count_tokens, score_canary
from turnwise.engines.server.calls import Dialect, Reply
from turnwise.engines.server.server import Server, ServerLost
from turnwise.engines.server.sglang import SglangDialect
from turnwise.engines.server.vllm import VllmDialect
from turnwise.engines.stops import find_stop, looking_for_stop
from turnwise.engines.workers.router import Router
from turnwise.models.lora import list_adapter
from turnwise.models.staging import Staged, Staging

DIALECTS: Mapping[str, type[Dialect]] = {"vllm": VllmDialect, "sglang": SglangDialect}
STOP_TOKENS = 64
"""A reply with stop strings is requested in parts of this many tokens: tokens sampled after a stop string are thrown
away."""
MAX_LOSSES = 3
"""Most servers that may be lost during one request."""
ABORT_S = 0.2
"""Seconds between two calls to abort: a server does not remember an abort that arrives before its request."""
POLL_S = 0.005
"""Seconds between two checks of what is still open."""
RETURN_S = 2.0
"""Seconds between two attempts to bring a server back."""


@dataclass(slots=True, eq=False)
class _Request:
    """A requested completion, and what was sampled of it."""

    prompt_ids: list[int]
    params: SamplingParams
    session: Session
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    num_losses: int = 0

    def begin_anew(self) -> int:
        """Forget what was sampled. Returns the number of tokens."""
        num_dropped = len(self.token_ids)
        for column in (self.token_ids, self.logprobs, self.versions):
            column.clear()
        return num_dropped

    def complete(self, reason: FinishReason) -> Completion:
        first, last = self.versions[0], self.versions[-1]
        return Completion(
            token_ids=to_ids(self.token_ids),
            logprobs=to_floats(self.logprobs),
            finish_reason=reason,
            version_first=first,
            version_last=last,
            versions=to_ids(self.versions) if first != last else None,
        )


class ServerEngine:
    """Implements `core.protocols.PausableEngine`. Belongs to the event loop that first uses it.

    Samples follow the model's distribution but are not determined by seeds.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        urls: Sequence[str],
        speaks: str,
        max_concurrency: int,
        max_context: int,
        staging: str | Path | None = None,
        timeout_s: float = 600.0,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        """Raises EngineError if a server does not answer, or weights cannot be staged.

        Args:
            urls: URLs of the servers, `http(s)://host:port` or `unix:/path/of/socket`.
            speaks: "vllm" or "sglang".
            max_concurrency: requests open at once, over all servers.
            staging: folder to which weights are written for the servers to read; None is this machine's shared memory.
            timeout_s: most seconds that a server may take for one answer, and that a request waits for a server that is
                away.
            decode: text of token ids, for stop strings; None refuses them.
        """
        if list_adapter(model):
            raise EngineError("engine.kind='server' only samples full models; use 'paged' or 'vllm' with model.lora")
        self._model, self._decode, self._max_context, self._timeout_s = model, decode, max_context, timeout_s
        self._dialect = DIALECTS[speaks]()
        self._servers = [Server(url, self._dialect, timeout_s=timeout_s) for url in urls]
        self._staging = Staging(None if staging is None else Path(staging))
        weakref.finalize(self, self._staging.remove)
        self._router = Router(num_workers=len(urls), max_open=-(-max_concurrency // len(urls)))
        self._ready: set[int] = set()
        self._has_ready = asyncio.Event()
        self._returning: dict[int, asyncio.Task[None]] = {}
        self._weights_lock = asyncio.Lock()
        self._weights: tuple[Staged, Canary] | None = None
        """None before the first request and the first version."""
        self._work: set[asyncio.Task[Completion]] = set()
        """Replies that callers wait for."""
        self._open: set[_Request] = set()
        self._begun: set[_Request] = set()
        """Open requests that a pause with "finish" lets end."""
        self._sent: dict[str, Server] = {}
        """The server of each call that waits for an answer, by the call's name."""
        self._prefix, self._numbers = uuid.uuid4().hex[:12], itertools.count()
        """Prefix of the names of calls: other runs may have used the server before."""
        self._interrupt: Interrupt = "continue"
        self._may_begin = asyncio.Event()
        self._may_begin.set()
        self._is_closed = False
        self.version = 0
        """See `Engine.version`."""
        self.losses: list[str] = []
        """Why servers were left out, each for a while."""

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`. Also raises EngineError for a grammar, for parameters without log-probabilities from
        the servers, and if no server is available for `timeout_s`."""
        if self._is_closed:
            raise EngineError(f"the engine is closed and rejected the request of '{session}'")
        if (why := self._dialect.refuse(params)) is not None:
            raise EngineError(f"the request of '{session}' cannot be sampled: {why}; leave these at their defaults")
        check_plain_request("server", prompt_ids, params, session, self._model, self._max_context, self._decode)
        work = asyncio.create_task(self._sample(_Request(prompt_ids.tolist(), params, session)))
        self._work.add(work)
        try:
            return await work
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._is_closed and caller is not None and not caller.cancelling():
                raise EngineError(f"the engine was closed before the reply of '{session}' ended") from None
            raise
        finally:
            self._work.discard(work)

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        self._router.release(session)

    async def pause(self, interrupt: Interrupt = "continue") -> int:
        """See `PausableEngine.pause`."""
        self._interrupt = interrupt
        self._may_begin.clear()
        if interrupt == "finish":
            while self._begun:
                await asyncio.sleep(POLL_S)
            return 0
        while self._sent:
            calls = [server.send(self._dialect.abort(name)) for name, server in self._sent.items()]
            # If a server cannot be told to abort, its request loses it as well, by the request's own deadline.
            await asyncio.gather(*calls, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ABORT_S):
                    while self._sent:
                        await asyncio.sleep(POLL_S)
        return sum(request.begin_anew() for request in self._open) if interrupt == "restart" else 0

    async def adopt(self, version: int) -> Mapping[str, int]:
        """See `PausableEngine.adopt`. Raises EngineError naming the tensor that a server read differently, and if no
        server can sample with the new weights."""
        check_idle(version, len(self._open) if self._may_begin.is_set() else len(self._sent))
        async with self._weights_lock:
            return await self._publish(version)

    async def resume(self) -> None:
        """See `PausableEngine.resume`."""
        self._may_begin.set()

    async def close(self) -> None:
        """See `Engine.close`. The servers go on with the weights that they have."""
        self._is_closed = True
        tasks = [*self._work, *self._returning.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self._servers))
        self._staging.remove()

    async def _sample(self, request: _Request) -> Completion:
        """Sample a whole reply."""
        await self._connect()
        self._open.add(request)
        try:
            while (completion := await self._advance(request)) is None:
                pass
            return completion
        finally:
            self._open.discard(request)
            self._begun.discard(request)

    async def _connect(self) -> None:
        """Publish the present weights unless some were published."""
        if self._weights is None:
            async with self._weights_lock:
                if self._weights is None:
                    await self._publish(self.version)

    async def _publish(self, version: int) -> Mapping[str, int]:
        """Publish the weights: the first time to all servers, each of which must accept them; later to those that are
        ready."""
        is_first = self._weights is None
        num_tokens = count_tokens(self._model, self._max_context) if is_first else NUM_CANARY_TOKENS

        def write() -> tuple[Staged, Canary]:
            return self._staging.write(self._model), score_canary(self._model, num_tokens)

        staged, canary = await asyncio.to_thread(write)
        targets = range(len(self._servers)) if is_first else sorted(self._ready)
        failures = await self._each(targets, lambda server: server.stage(staged, version))
        for number, failure in failures.items():
            if is_first or not isinstance(failure, ServerLost):
                raise failure  # nothing is loaded anywhere
            self._leave(number, failure)
        targets = [number for number in targets if number not in failures]
        failures = await self._each(targets, lambda server: server.commit(staged, canary, version))
        for number, failure in failures.items():
            self._leave(number, failure)
        wrong = [failure for failure in failures.values() if is_first or not isinstance(failure, ServerLost)]
        if wrong and (is_first or len(wrong) == len(targets)):
            raise wrong[0]
        self._weights, self.version = (staged, canary), version
        self._router.forget()
        if is_first:
            self._ready.update(targets)
            self._has_ready.set()
        return staged.sums

    async def _each(
        self, numbers: Sequence[int], act: Callable[[Server], Coroutine[None, None, None]]
    ) -> dict[int, EngineError]:
        """Act on these servers concurrently. Returns the failures by server number."""
        outcomes = await asyncio.gather(*(act(self._servers[number]) for number in numbers), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, EngineError):
                raise outcome
        return {
            number: outcome
            for number, outcome in zip(numbers, outcomes, strict=True)
            if isinstance(outcome, EngineError)
        }

    async def _advance(self, request: _Request) -> Completion | None:
        """Request the rest of a reply, or its next part. Returns None if more is needed."""
        number = await self._choose(request)
        self._begun.add(request)
        server, name, version = self._servers[number], f"{self._prefix}-{next(self._numbers)}", self.version
        num_left = request.params.max_tokens - len(request.token_ids)
        params = replace(
            request.params, max_tokens=min(num_left, STOP_TOKENS) if request.params.stop else num_left, stop=()
        )
        call = self._dialect.generate(name, [*request.prompt_ids, *request.token_ids], params, str(version))
        self._sent[name] = server
        try:
            reply = await server.send(call)
            if reply.version not in (None, str(version)):
                raise ServerLost(
                    f"{server.name} sampled with weights {reply.version} instead of {version}; was it restarted?"
                )
            if reply.reason == "abort" and not self._must_wait(request):
                raise ServerLost(f"{server.name} ended a request without being told to; is something else using it?")
        except ServerLost as loss:
            self._leave(number, loss)
            request.num_losses += 1
            if request.num_losses > MAX_LOSSES:
                raise EngineError(
                    f"the request of '{request.session}' failed on {MAX_LOSSES + 1} servers: {loss}"
                ) from None
            return None
        finally:
            del self._sent[name]
            self._router.end(number)
        return self._take(request, reply, version)

    def _take(self, request: _Request, reply: Reply, version: int) -> Completion | None:
        """Add a reply's tokens. Returns the completion if it ends there."""
        start = len(request.token_ids)
        request.token_ids += reply.token_ids
        request.logprobs += reply.logprobs
        request.versions += [version] * len(reply.token_ids)
        if request.params.stop and self._decode is not None:
            with looking_for_stop(request.session):
                end = find_stop(request.token_ids, request.params.stop, self._decode, start=start)
            if end is not None:
                for column in (request.token_ids, request.logprobs, request.versions):
                    del column[end:]
                return request.complete(FinishReason.STOP)
        if reply.reason == "stop":
            return request.complete(FinishReason.STOP)
        if len(request.token_ids) >= request.params.max_tokens:
            return request.complete(FinishReason.LENGTH)
        return None

    def _must_wait(self, request: _Request) -> bool:
        """Return whether a pause holds the request back."""
        return not self._may_begin.is_set() and (request not in self._begun or self._interrupt != "finish")

    async def _choose(self, request: _Request) -> int:
        """Wait for a server for a request that may continue. Raises EngineError if none is available for
        `timeout_s`."""
        while self._must_wait(request) or not self._ready:
            if self._must_wait(request):
                await self._may_begin.wait()
                continue
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._has_ready.wait()
            except TimeoutError:
                raise EngineError(
                    f"no server was available for {self._timeout_s:g} s for the request of '{request.session}'; the "
                    f"last one left: {self.losses[-1]}"
                ) from None
        return self._router.start(request.session)

    def _leave(self, number: int, cause: EngineError) -> None:
        """Send a server nothing until it has loaded and verified the present weights."""
        if number not in self._ready:
            return
        self.losses.append(str(cause))
        self._ready.discard(number)
        self._router.leave(number)
        if not self._ready:
            self._has_ready.clear()
        self._returning[number] = asyncio.create_task(self._bring_back(number))

    async def _bring_back(self, number: int) -> None:
        server = self._servers[number]
        while True:
            await asyncio.sleep(RETURN_S)
            assert self._weights is not None
            (staged, canary), version = self._weights, self.version
            with contextlib.suppress(EngineError):
                await server.stage(staged, version)
                await server.commit(staged, canary, version)
                # Not held while the server loads, which may take long: another version may have arrived meanwhile.
                async with self._weights_lock:
                    if self.version == version:
                        self._ready.add(number)
                        self._router.enter(number)
                        self._has_ready.set()
                        return
