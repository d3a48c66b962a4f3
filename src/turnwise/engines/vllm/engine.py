"""The vLLM engine of a run: processes under vLLM's own interpreter, connected by sockets, that end with this process.

Weights arrive in two phases. *Stage*: they are written with a manifest, every process reads all of them, and its
checksums must equal the trainer's; an error here leaves every engine as it was. *Commit*: they are loaded, the prefix
cache is emptied, and a **canary** is scored on both sides, because checksums of received weights do not show what a
model computes with. A process that fails after staging is restarted on the staged weights.

For a model with an adapter, the base is staged once, before the first process starts, and each version is the adapter
alone.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedModel

from turnwise.core.errors import EngineError, boundary
from turnwise.core.protocols import Interrupt, Receive
from turnwise.core.types import Completion, FinishReason, IntArray, Prompt, SamplingParams, Session
from turnwise.engines.admission import check_idle, check_plain_request
from turnwise.engines.canary import NUM_CANARY_TOKENS, Canary, count_tokens, score_canary, score_prompt
from turnwise.engines.stops import find_stop, looking_for_stop
from turnwise.engines.vllm.adapters import plan_room
from turnwise.engines.vllm.broadcast import DEADLINE_S, broadcast_weights
from turnwise.engines.vllm.guests import Guests, Weights, check_sums
from turnwise.engines.vllm.pictures import find_layout, paint_canary, plan_eyes, show, write_processor
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.messages import decode_completion, encode_request
from turnwise.engines.workers.pool import WorkerPool
from turnwise.hosts.host import Host
from turnwise.hosts.local import LocalHost
from turnwise.models.hub_tensors import list_hub_tensors
from turnwise.models.paths import is_fast
from turnwise.models.staging import Staged, Staging
from turnwise.models.vision.eyes import find_eyes

Transport = Literal["files", "broadcast"]


class VllmEngine:
    """Implements `core.protocols.PausableEngine`. Belongs to the event loop that first uses it.

    Samples follow the model's distribution but are not determined by seeds.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        python: str | Path,
        num_workers: int,
        max_concurrency: int,
        max_context: int,
        num_threads: int = 1,
        cache_mib: int = 512,
        block_size: int = 32,
        staging: str | Path | None = None,
        transport: Transport = "files",
        seed: int = 0,
        decode: Callable[[Sequence[int]], str] | None = None,
        start_s: float = 600.0,
        silence_s: float = 600.0,
        host: Host | None = None,
    ) -> None:
        """Processes start with the first request, which takes most of a minute.

        Raises EngineError if there is no interpreter at `python`, weights cannot be staged, or the model has an adapter
        that vLLM cannot hold.

        Args:
            python: the interpreter that has vLLM.
            num_workers: processes, each with its share of `max_concurrency`.
            cache_mib: memory of each process for keys and values.
            block_size: tokens of a block; prefixes are reused in whole blocks.
            staging: where weights are written; None is shared memory.
            transport: how running processes get new weights: from these files, or by a broadcast over gloo.
            decode: text of token ids, for stop strings; None refuses them.
            start_s: a process that is not ready after this many seconds is ended and its requests fail.
            silence_s: the same for a process that has work but sends nothing for this many seconds.
            host: where processes run; None is this machine.
        """
        if not Path(python).is_file():
            raise EngineError(
                f"engine.options.python={str(python)!r} is not an interpreter; create it with peers/vllm_setup.sh"
            )
        self._model, self._decode = model, decode
        self._room = plan_room(model)
        self._broadcasts = transport == "broadcast"
        if self._broadcasts and self._room is not None:
            raise EngineError("vLLM reads adapters from files; use engine.options.transport='files' with model.lora")
        self._max_context = max_context
        self._staging = Staging(None if staging is None else Path(staging))
        weakref.finalize(self, self._staging.remove)
        share = -(-max_concurrency // num_workers)
        self._guests = Guests(
            model=type(model).__name__,
            python=Path(python).absolute(),
            settings={
                "dtype": str(model.dtype).removeprefix("torch."),
                "max_context": max_context,
                "max_concurrency": share,
                "cache_bytes": cache_mib << 20,
                "block_size": block_size,
                "seed": seed,
                "lora": self._room,
                "is_hybrid": not is_fast(model),
                "eyes": plan_eyes(model, max_context),
            },
            logs=self._staging.root,
            num_threads=num_threads,
            start_s=start_s,
            silence_s=silence_s,
            host=host or LocalHost(),
        )
        self._deadline_s = min(DEADLINE_S, silence_s / 2)
        # Nothing that ends the processes may reference the engine, or it would never be collected.
        self._pool = WorkerPool(self._guests.start, num_workers=num_workers, max_open=share, name="vLLM engine")
        weakref.finalize(self, self._pool.kill)
        self._staging_lock, self._num_open = asyncio.Lock(), 0
        self._is_paused = self._is_closed = False
        self.seconds: Mapping[str, float] = {}
        """Seconds taken by parts of the last adoption: `write` by this process, `verify` until all engines had computed
        checksums."""
        self.restart_causes: list[str] = []
        """Why processes were restarted: they failed after staging."""

    @property
    def version(self) -> int:
        """See `Engine.version`."""
        return 0 if self._guests.weights is None else self._guests.weights.version

    def statistics(self) -> Mapping[str, float]:
        """Sums over the running processes since their start: tokens sampled, prompt tokens, and how many of these were
        cached."""
        counts = self._pool.statistics()
        return {name: sum(count[name] for count in counts) for name in (counts[0] if counts else ())}

    def links(self) -> list[Link]:
        """Links to the running processes."""
        return self._pool.open_links()

    def pids(self) -> list[int]:
        """Process ids of the running processes."""
        return self._pool.pids()

    async def check(self) -> None:
        """See `CheckedEngine.check`."""
        await self._stage_first()
        await self._pool.start()

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`. Also raises EngineError for a grammar, and for stop strings without `decode`."""
        return await self._sample(Prompt(token_ids=prompt_ids), params, session, None)

    async def generate_seeing(self, prompt: Prompt, params: SamplingParams, *, session: Session) -> Completion:
        """See `SeeingEngine.generate_seeing`. Also raises EngineError if vLLM's processor makes other tokens of the
        pictures."""
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
        check_plain_request("vllm", prompt.token_ids, params, session, self._model, self._max_context, self._decode)
        await self._stage_first()
        if self._is_closed:
            raise EngineError(f"the engine was closed before the reply of '{session}' ended")
        watch = _StopWatch(params.stop, self._decode, session) if params.stop and self._decode else None
        has_told = is_thrown_away = False

        def hear(link: Link, number: int, part: list[int] | None) -> None:
            nonlocal has_told, is_thrown_away
            if watch is not None:
                watch.hear(link, number, part)
            if receive is not None and part is not None:
                has_told = True
                receive(part)
            is_thrown_away = is_thrown_away or (has_told and part is None)

        is_watched = watch is not None or receive is not None
        shown = await asyncio.to_thread(show, prompt, find_eyes(self._model)) if prompt.images else None
        fields = {**encode_request(prompt, params, session), "watch": is_watched, "shown": shown}
        self._num_open += 1
        try:
            answer = await self._pool.ask_one("generate", fields, session, hear=hear if is_watched else None)
        finally:
            self._num_open -= 1
        if is_thrown_away:
            raise EngineError(f"the weights changed while '{session}' was streamed")
        completion = decode_completion(answer)
        return completion if watch is None else watch.cut(completion)

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        link = self._pool.release(session)
        if link is not None:
            link.tell("release", session=asdict(session))

    async def pause(self, interrupt: Interrupt = "continue") -> int:
        """See `PausableEngine.pause`."""
        self._is_paused = True
        return await self._pool.pause(interrupt)

    async def adopt(self, version: int) -> Mapping[str, int]:
        """See `PausableEngine.adopt`. Raises EngineError naming the tensor that a process read differently, and if the
        canary is still wrong after a process was restarted."""
        check_idle(version, 0 if self._is_paused else self._num_open)
        async with self._staging_lock:
            began = time.perf_counter()
            weights = await self._stage(version)
            staged, written = weights.staged, time.perf_counter()
            for link, sums in await self._distribute(staged):
                check_sums(link, staged, sums)
            self.seconds = {"write": written - began, "verify": time.perf_counter() - written}
            self._guests.weights = weights
            self._pool.remember(version=version, folder=staged.folder)
            links = self._pool.open_links()
            failures = await asyncio.gather(*map(self._commit, links), return_exceptions=True)
            for failure in failures:
                if failure is not None and not isinstance(failure, EngineError):
                    raise failure
            causes = {link: str(cause) for link, cause in zip(links, failures, strict=True) if cause is not None}
            self.restart_causes += causes.values()
            await self._pool.restart({link: f"failed after its weights were staged: {causes[link]}" for link in causes})
            return staged.sums

    async def resume(self) -> None:
        """See `PausableEngine.resume`."""
        self._is_paused = False
        await self._pool.resume()

    async def close(self) -> None:
        """See `Engine.close`."""
        self._is_closed = True
        await self._pool.close()
        async with self._staging_lock:  # what is being written is written first, and nothing of it is left
            self._staging.remove()

    async def _stage_first(self) -> None:
        """Stage the weights before the first process starts, unless a version was adopted."""
        async with self._staging_lock:
            if self._is_closed:
                raise EngineError("the engine was closed")
            if self._guests.weights is None:
                self._guests.weights = await self._stage(version=0)

    async def _distribute(self, staged: Staged) -> list[tuple[Link, Mapping[str, int]]]:
        """Let every running process hold the staged weights. Returns each process's link and checksums."""
        if not self._broadcasts:
            return await self._pool.ask_all("stage", folder=staged.folder)
        tensors = list_hub_tensors(self._model)
        return await broadcast_weights(self._pool, tensors, label=str(staged.folder), deadline_s=self._deadline_s)

    async def _commit(self, link: Link) -> None:
        await self._guests.commit(link, carries=not self._broadcasts)

    async def _stage(self, version: int) -> Weights:
        # The first time, the canary also proves what the model computes beyond its windows; later only the weights
        # change.
        is_first = self._guests.weights is None
        num_tokens = count_tokens(self._model, self._max_context) if is_first else NUM_CANARY_TOKENS

        def write() -> Weights:
            canary = score_canary(self._model, num_tokens)
            return Weights(staged=self._write(), canary=canary, version=version, seen=self._score_seeing())

        return await asyncio.to_thread(write)

    def _score_seeing(self) -> tuple[Canary, Mapping[str, Any]] | None:
        layout = find_layout(self._model)
        if layout is None:
            return None
        looking, prompt = paint_canary(self._model, layout)
        shown = show(prompt, find_eyes(looking))
        assert shown is not None
        return score_prompt(looking, prompt), shown

    def _write(self) -> Staged:
        if self._room is None:
            return self._staging.write(self._model, self._find_processor())
        if self._guests.base is None:
            self._guests.base = self._staging.write_base(self._model)
        return self._staging.write_adapter(self._model, self._guests.base)

    def _find_processor(self) -> Path | None:
        """Return the folder of what vLLM needs to prepare pictures; None for a model that reads text."""
        folder, layout = self._staging.root / "processor", find_layout(self._model)
        if layout is None:
            return None
        if not folder.exists():
            with boundary(EngineError, f"cannot write the model's processor to {folder}; free space there"):
                write_processor(layout, folder)
        return folder


class _StopWatch:
    """Ends a reply with the token that completes a stop string."""

    def __init__(self, stop: tuple[str, ...], decode: Callable[[Sequence[int]], str], session: Session) -> None:
        self._stop, self._decode, self._session = stop, decode, session
        self._token_ids: list[int] = []
        self._end: int | None = None

    def hear(self, link: Link, number: int, part: list[int] | None) -> None:
        """Receive more tokens, or None if the reply begins again; cuts the request where it should end."""
        if part is None:
            self._token_ids, self._end = [], None
        elif self._end is None:
            self._token_ids += part
            start = len(self._token_ids) - len(part)
            self._end = self._find(self._token_ids, start)
            if self._end is not None:
                link.tell("cut", request=number, num_tokens=self._end)

    def cut(self, completion: Completion) -> Completion:
        """Return the completion up to where it should end: more may have been sampled before the engine heard of it."""
        end = self._find(completion.token_ids.tolist(), 0)
        if end is None or end == len(completion.token_ids):
            ends = completion.finish_reason if end is None else FinishReason.STOP
            return replace(completion, finish_reason=ends)
        versions = None if completion.versions is None else completion.versions[:end]
        return replace(
            completion,
            token_ids=completion.token_ids[:end],
            logprobs=completion.logprobs[:end],
            versions=versions,
            version_last=completion.version_last if versions is None else int(versions[-1]),
            finish_reason=FinishReason.STOP,
        )

    def _find(self, token_ids: Sequence[int], start: int) -> int | None:
        with looking_for_stop(self._session):
            return find_stop(token_ids, self._stop, self._decode, start=start)
