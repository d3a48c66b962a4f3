"""The desk: keeps episodes by key, each for one caller at a time, with limits and deadlines, and ends idle ones.

A surface adds its protocol: how a key and a reply are written, and what a client is shown. An episode opens at the
first use of its key and ends when it breaks, when the surface closes it, or when it has been unused for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf

from turnwise.core.episodes import AskingEnvironment
from turnwise.core.errors import EnvironmentFault, boundary
from turnwise.core.protocols import Environment
from turnwise.core.types import Task
from turnwise.serving.episode import OutsideEpisode

Build = Callable[[], tuple[Environment | AskingEnvironment, Task]]
"""Builds a fresh environment and the task to open it with."""


class EpisodeEnded(EnvironmentFault):
    """The episode ended while its caller waited for it."""


@dataclass(slots=True, eq=False)
class _Seat:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    episode: OutsideEpisode | None = None
    """The episode; None until it is opened."""
    num_waiting: int = 0
    """Callers that hold the lock or wait for it."""
    used: float = 0.0
    """When the last call ended, by the monotonic clock."""


class Desk:
    """Opens, keeps and ends episodes for any number of clients."""

    def __init__(
        self,
        *,
        max_open: int,
        timeout_s: float,
        max_turns: int | None = None,
        max_concurrent: int | None = None,
        idle_s: float = inf,
        replaces: bool = False,
        noun: str = "episode",
        nouns: str = "episodes",
    ) -> None:
        """`max_open` limits the open episodes: a further one is refused, or with `replaces` ends the oldest unused
        one. `max_concurrent` limits the calls that run at once (None: any number), `timeout_s` the seconds of a
        call; a longer call ends its episode. `max_turns` limits a conversation. `noun` and `nouns` name an episode
        in errors."""
        self._max_open, self._replaces = max_open, replaces
        self._timeout_s, self._idle_s, self._max_turns = timeout_s, idle_s, max_turns
        self._places = asyncio.Semaphore(max_concurrent) if max_concurrent else nullcontext()
        self._noun, self._nouns = noun, nouns
        self._seats: dict[str, _Seat] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._seats

    @property
    def num_open(self) -> int:
        """Episodes that have begun and not ended."""
        return len(self._seats)

    @asynccontextmanager
    async def use(self, key: str, build: Build | None = None, *, seed: int = 0) -> AsyncIterator[OutsideEpisode]:
        """Yield the episode for a key, for one caller at a time, first come, first served; opened by `build` if there
        is none.

        Raises EnvironmentFault if there is none to use or no room to open it, EpisodeEnded if it ended while this
        caller waited, TimeoutError after `timeout_s`, and what opening it raises.
        """
        seat = self._seats.get(key)
        if seat is None:
            if build is None:
                raise EnvironmentFault(f"there is no open {self._noun} {key[:50]!r}")
            if len(self._seats) >= self._max_open and not self._replaces:
                raise self._full()
            seat = self._seats[key] = _Seat()
        seat.num_waiting += 1
        try:
            async with seat.lock:
                if self._seats.get(key) is not seat:
                    raise EpisodeEnded(f"the {self._noun} was ended by an earlier call")
                try:
                    async with self._places, asyncio.timeout(self._timeout_s):
                        yield seat.episode or await self._open(key, seat, build, seed)
                finally:
                    if seat.episode is None or seat.episode.is_broken or seat.episode.is_closed:
                        await self._end(key, seat)
        finally:
            seat.num_waiting -= 1
            seat.used = time.monotonic()

    async def finish(self, key: str) -> None:
        """End an episode after the calls that wait for it. Raises EpisodeEnded if one of them ended it."""
        seat = self._seats[key]
        seat.num_waiting += 1
        try:
            async with seat.lock:
                if self._seats.get(key) is not seat:
                    raise EpisodeEnded(f"the {self._noun} was ended by an earlier call")
                await self._end(key, seat)
        finally:
            seat.num_waiting -= 1

    async def sweep(self) -> None:
        """End idle episodes."""
        oldest = time.monotonic() - self._idle_s
        for key, seat in list(self._seats.items()):
            if not seat.num_waiting and seat.used < oldest:
                await self._end(key, seat)

    async def close(self) -> None:
        """End every episode."""
        await asyncio.gather(*(self._end(key, seat) for key, seat in list(self._seats.items())))

    async def _open(self, key: str, seat: _Seat, build: Build | None, seed: int) -> OutsideEpisode:
        assert build is not None  # a caller that found no seat has passed it
        where = f"{self._noun} {key[:80]}"
        with boundary(EnvironmentFault, f"opening {where}"):
            environment, task = build()
        episode = OutsideEpisode(environment, task, seed=seed, max_turns=self._max_turns, where=where)
        try:
            await episode.begin()
            await self._make_room()
        except BaseException:
            await episode.close()
            raise
        seat.episode = episode
        return episode

    async def _make_room(self) -> None:
        while len(self._seats) > self._max_open:
            idle = next(((key, seat) for key, seat in self._seats.items() if not seat.num_waiting), None)
            if idle is None:
                raise self._full()
            await self._end(*idle)

    def _full(self) -> EnvironmentFault:
        return EnvironmentFault(
            f"{self._max_open} {self._nouns} are open, the most that this server allows; finish some"
        )

    async def _end(self, key: str, seat: _Seat) -> None:
        """Remove an episode from the desk and close it."""
        if self._seats.get(key) is seat:
            del self._seats[key]
        if seat.episode is not None:
            await seat.episode.close()
