"""The workers of one engine: starts, ends and replaces them, and sends them what concerns all: the weight version, and
whether to pause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.core.errors import EngineError
from turnwise.core.notices import tell_start
from turnwise.core.protocols import Interrupt
from turnwise.core.types import Session
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.router import Router
from turnwise.models.checksums import find_difference


@dataclass(slots=True, eq=False)
class Place:
    """The place of one worker, and of its replacements."""

    name: str
    link: Link | None = None
    """The link to the worker that runs, or that ended last."""
    starting: asyncio.Task[Link] | None = None


class WorkerPool:
    """The workers of one engine. They start with the first request; one that ended is replaced at the next request.

    Belongs to the event loop that first uses it."""

    def __init__(
        self, start: Callable[[str], Awaitable[Link]], *, num_workers: int, max_open: int, name: str = "engine worker"
    ) -> None:
        """`start` starts the worker with a name and returns when it is ready; a worker samples at most `max_open`
        requests at once."""
        self._start_link = start
        self._router = Router(num_workers=num_workers, max_open=max_open)
        self._name = name
        self._places = [Place(f"{name} {index}") for index in range(num_workers)]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._version = 0
        self._folder: Path | None = None
        """The folder that every worker was last told to adopt; a new worker is told it first."""
        self._is_paused = False

    async def ask_one(
        self,
        kind: str,
        fields: Mapping[str, Any],
        session: Session,
        hear: Callable[[Link, int, Any], None] | None = None,
    ) -> Any:
        """Ask the worker that keeps `session` and return its answer. An EngineError concerns this request alone. `hear`
        is called with the worker, the request's number and each part that arrives before the answer."""
        self._bind()
        for place in self._places:
            self._begin(place)
        number = self._router.start(session)
        place = self._places[number]
        try:
            link = place.link
            if link is None or not link.is_open:
                link = await self._wait_for_start(place)
            return await link.ask(kind, hear=None if hear is None else partial(hear, link), **fields)
        finally:
            self._router.end(number)

    async def start(self) -> None:
        """Start all workers that do not run, and wait until they are ready. Raises EngineError if one cannot start."""
        self._bind()
        for place in self._places:
            self._begin(place)
        await asyncio.gather(*(self._wait_for_start(place) for place in self._places if place.starting is not None))

    def find(self, session: Session) -> Link | None:
        """Return the worker that keeps a conversation; None if none does, or it has not started yet."""
        number = self._router.find(session)
        return None if number is None else self._places[number].link

    def release(self, session: Session) -> Link | None:
        """Forget where a conversation is kept. Returns the worker that kept it, None if none does any more."""
        number = self._router.release(session)
        return None if number is None else self._places[number].link

    async def pause(self, interrupt: Interrupt) -> int:
        """Stop every worker. Returns the number of sampled tokens thrown away. A worker that does not answer is
        ended."""
        self._bind()
        self._is_paused = True
        links = self.open_links()
        answers = await asyncio.gather(
            *(link.ask("pause", interrupt=interrupt) for link in links), return_exceptions=True
        )
        for link, answer in zip(links, answers, strict=True):
            # A worker that has ended computes nothing either.
            if isinstance(answer, BaseException) and (link.is_open or not isinstance(answer, EngineError)):
                raise answer
        return sum(answer for answer in answers if not isinstance(answer, BaseException))

    def remember(self, version: int, folder: Path | None = None) -> None:
        """Set what workers started from now on adopt, and forget what is cached. `folder` holds the weights for workers
        that do not read them elsewhere."""
        self._bind()
        self._version, self._folder = version, folder
        self._router.forget()

    async def adopt(self, version: int) -> Mapping[str, int] | None:
        """Let every worker adopt the weights as they are. Returns the checksums on which all agree, None if no worker
        runs. A worker that has ended is replaced at the next request, with the weights as they are then.

        Raises EngineError naming the tensor in which two workers differ.
        """
        self.remember(version)
        answers: list[tuple[Link, Mapping[str, int]]] = await self.ask_all("adopt", version=version)
        for link, sums in answers:
            tensor = find_difference(answers[0][1], sums)
            if tensor is not None:
                raise EngineError(
                    f"{link.name} and {answers[0][0].name} differ in {tensor} after adopting version {version}"
                )
        return answers[0][1] if answers else None

    async def ask_all(self, kind: str, folder: Path | None = None, **fields: Any) -> list[tuple[Link, Any]]:
        """Ask all running workers and return their answers; `folder` is copied to where each runs. A worker that ends
        meanwhile is replaced at the next request. Raises EngineError if one fails but keeps running."""

        async def ask(link: Link) -> Any:
            return await link.ask(kind, **fields, **await _carry(link, folder))

        links = self.open_links()
        answers = await asyncio.gather(*map(ask, links), return_exceptions=True)
        for link, answer in zip(links, answers, strict=True):
            if isinstance(answer, BaseException) and (link.is_open or not isinstance(answer, EngineError)):
                raise answer
        return [(link, answer) for link, answer in zip(links, answers, strict=True) if link.is_open]

    async def restart(self, reasons: Mapping[Link, str]) -> None:
        """End these workers, each for its reason, and start others in their places; their open requests fail.

        Raises EngineError if one does not start.
        """
        places = [(place, place.link) for place in self._places if place.link is not None and place.link in reasons]
        for place, link in places:
            link.end(reasons[link])
            self._begin(place)
        for place, _ in places:
            await self._wait_for_start(place)

    async def resume(self) -> None:
        """Continue after `pause`."""
        self._is_paused = False
        await asyncio.gather(*(link.ask("resume") for link in self.open_links()), return_exceptions=True)

    def statistics(self) -> list[Mapping[str, Any]]:
        """Statistics of each running worker, as of its last message."""
        return [link.statistics for link in self.open_links() if link.statistics]

    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [link.pid for link in self.open_links() if link.pid is not None]

    async def close(self) -> None:
        """End every worker; their requests fail."""
        for place in self._places:
            if place.starting is not None and not place.starting.done():
                place.starting.cancel()
                await asyncio.wait([place.starting])
            if place.link is not None:
                place.link.end("was stopped: the engine was closed", is_loss=False)

    def kill(self) -> None:
        """Kill the processes of an engine that was never closed."""
        for link in self.open_links():
            link.kill()

    def open_links(self) -> list[Link]:
        """Links of the running workers."""
        return [place.link for place in self._places if place.link is not None and place.link.is_open]

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise EngineError("the engine's workers belong to the event loop that used the engine first; use one loop")
        self._loop = loop

    def _begin(self, place: Place) -> None:
        """Start a worker here unless one is running or starting."""
        if (place.link is None or not place.link.is_open) and (place.starting is None or place.starting.done()):
            place.starting = asyncio.create_task(self._start(place))
            # Retrieve the error even if no request waits for this start.
            place.starting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _wait_for_start(self, place: Place) -> Link:
        assert place.starting is not None
        try:
            # Another request may wait for the same start.
            return await asyncio.shield(place.starting)
        except asyncio.CancelledError:
            if place.starting.cancelled():
                raise EngineError(f"{place.name} was stopped while starting: the engine was closed") from None
            raise

    async def _start(self, place: Place) -> Link:
        if place is self._places[0] and place.link is None:
            plural = "es" if self._name.endswith("s") else "s"
            tell_start(f"starting {len(self._places)} {self._name}{plural if len(self._places) > 1 else ''}")
        link = await self._start_link(place.name)
        if place.link is not None:
            tell_start(f"{link.name} takes the place of {place.link.name}")
        # The first messages, before any request.
        link.tell("adopt", version=self._version, **await _carry(link, self._folder))
        if self._is_paused:
            link.tell("pause", interrupt="continue")
        place.link = link
        return link


async def _carry(link: Link, folder: Path | None) -> dict[str, Any]:
    return {} if folder is None else {"folder": str(await link.carry(folder))}
