"""A number of places for pages: taken, waited for, and handed on with what is in them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from turnwise_worlds.browser.outcomes import PageLost

T = TypeVar("T")


class Places(Generic[T]):
    """At most `count` places, each empty or with something that can be used again. For any thread and event loop."""

    def __init__(self, count: int, *, wait_s: float) -> None:
        """`wait_s` is how many seconds one may wait for a place."""
        self._num_free = count
        self._wait_s = wait_s
        self._kept: list[T] = []
        self._queue: list[tuple[Callable[[T], bool], Future[T | None]]] = []
        self._lock = threading.Lock()

    async def take(self, prefers: Callable[[T], bool]) -> T | None:
        """Return what is in a place: something preferred, else None for an empty place, else anything.

        Waits while all are taken; raises PageLost, outcome "queue", if that is too long.
        """
        with self._lock:
            found = next((each for each in self._kept if prefers(each)), None)
            if found is None and self._num_free:
                self._num_free -= 1
                return None
            if found is not None or self._kept:
                found = self._kept[0] if found is None else found
                self._kept.remove(found)
                return found
            waiting: Future[T | None] = Future()
            self._queue.append((prefers, waiting))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(waiting), self._wait_s)
        except TimeoutError:
            raise PageLost("queue", f"no page became free within {self._wait_s:g} s; raise max_pages") from None

    def give(self, content: T | None) -> None:
        """Give a place back, with what is in it: to somebody who waits and prefers it, else to who waits longest."""
        with self._lock:
            while self._queue:
                likes = [content is not None and prefers(content) for prefers, _ in self._queue]
                _, waiting = self._queue.pop(likes.index(True) if True in likes else 0)
                if waiting.set_running_or_notify_cancel():  # else who waited has gone
                    waiting.set_result(content)
                    return
            if content is None:
                self._num_free += 1
            else:
                self._kept.append(content)

    def empty(self) -> list[T]:
        """Empty the places that nobody has taken; returns what was in them."""
        with self._lock:
            kept, self._kept = self._kept, []
            self._num_free += len(kept)
            return kept
