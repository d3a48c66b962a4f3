"""The workers of one engine: they start, end and are replaced here, and hear what all must know, the weight version and
whether to pause.

Lives on one event loop, which is not the callers'. Knows nothing about tokens.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import EngineError
from turnwise.engines.workers.link import Link, WorkerPlan, start_link
from turnwise.engines.workers.router import Router


@dataclass(slots=True, eq=False)
class Place:
    """Where one worker runs, and the next one if it ends."""

    name: str
    link: Link | None = None
    starting: asyncio.Task[Link] | None = None


class WorkerPool:
    """The workers of one engine. They start with the first request; one that ended is replaced when the next comes."""

    def __init__(self, plan: WorkerPlan, *, num_workers: int, max_open: int) -> None:
        """`max_open` requests a worker samples at once."""
        self._plan = plan
        self._router = Router(num_workers=num_workers, max_open=max_open)
        self._places = [Place(f"engine worker {index}") for index in range(num_workers)]
        self._version = 0
        self._is_paused = False

    async def generate(self, fields: dict[str, Any]) -> Any:
        """The answer of the worker that `fields["session"]` belongs to. Raises EngineError for this request alone."""
        for place in self._places:
            self._begin(place)
        number = self._router.start(fields["session"])
        place = self._places[number]
        try:
            link = place.link
            if link is None or not link.is_open:
                link = await self._wait_for_start(place)
            return await link.ask("generate", **fields)
        finally:
            self._router.end(number)

    async def release(self, session: str) -> None:
        """Forget where a conversation is kept, and what was kept of it."""
        number = self._router.release(session)
        link = None if number is None else self._places[number].link
        if link is not None:
            link.tell("release", session=session)

    async def adopt(self, version: int) -> None:
        """Every worker goes on with the weights as they are now."""
        self._version = version
        self._router.forget()
        await self._ask_all("adopt", version=version)

    async def pause(self) -> None:
        """Every worker stops at its next token boundary. One that does not within `silence_s` is ended."""
        self._is_paused = True
        await self._ask_all("pause")

    async def resume(self) -> None:
        """Go on after `pause`."""
        self._is_paused = False
        await self._ask_all("resume")

    async def statistics(self) -> list[dict[str, int]]:
        """Of each worker that runs."""
        return await self._ask_all("statistics")

    def pids(self) -> list[int]:
        """Of the workers that run."""
        return [
            place.link.pid
            for place in self._places
            if place.link is not None and place.link.is_open and place.link.pid is not None
        ]

    async def close(self) -> None:
        """End every worker; their requests fail."""
        for place in self._places:
            if place.starting is not None and not place.starting.done():
                place.starting.cancel()
                await asyncio.wait([place.starting])
            if place.link is not None:
                place.link.end("was ended: the engine was closed")

    def _begin(self, place: Place) -> None:
        """See that a worker runs here or is about to."""
        if (place.link is None or not place.link.is_open) and (place.starting is None or place.starting.done()):
            place.starting = asyncio.create_task(self._start(place))
            # Where no request waits for it, nobody needs to hear that it failed.
            place.starting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _wait_for_start(self, place: Place) -> Link:
        assert place.starting is not None
        try:
            # Another request may wait for the same start.
            return await asyncio.shield(place.starting)
        except asyncio.CancelledError:
            if place.starting.cancelled():
                raise EngineError(f"{place.name} was ended while it started: the engine was closed") from None
            raise

    async def _start(self, place: Place) -> Link:
        link = await start_link(place.name, self._plan)
        # The first it hears, before any request.
        link.tell("adopt", version=self._version)
        if self._is_paused:
            link.tell("pause")
        place.link = link
        return link

    async def _ask_all(self, kind: str, **fields: Any) -> list[Any]:
        """Answers of all that run. A worker that ends meanwhile, or is ended because it does not answer, has none."""
        links = [place.link for place in self._places if place.link is not None and place.link.is_open]
        answers = await asyncio.gather(*(link.ask(kind, **fields) for link in links), return_exceptions=True)
        found = []
        for link, answer in zip(links, answers, strict=True):
            if not isinstance(answer, BaseException):
                found.append(answer)
            elif link.is_open or not isinstance(answer, EngineError):
                raise answer
        return found
