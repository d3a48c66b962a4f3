"""Daemon threads for blocking calls that may never come back.

Unlike `concurrent.futures`, nothing here is joined at exit: a tool that hangs costs one idle thread and nothing else.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeVar


T = TypeVar("T")


class _Worker(threading.Thread):
    """Runs one job at a time and puts itself back among the idle ones after each."""

    def __init__(self) -> None:
        super().__init__(name="turnwise-tool", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self.jobs.get()()
            _idle.append(self)


# list.append and list.pop are atomic; a hung worker is simply not in the list.
_idle: list[_Worker] = []


async def run_in_thread(job: Callable[[], T]) -> T:
    """The result of `job`, run in a daemon thread. Cancelling the wait abandons the thread to its job."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (job(), None)
        except BaseException as cause:  # noqa: BLE001 - carried to the waiting task and raised there
            outcome = (None, cause)
        # The loop is closed when the run ended while this job still hung: nobody is waiting any more.
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, *outcome)

    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.jobs.put(work)
    return await future
