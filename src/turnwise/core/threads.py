"""Daemon threads for blocking calls that may never come back.

Unlike `concurrent.futures`, nothing here is joined at exit: a call that hangs costs one thread and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class _Worker(threading.Thread):
    """Runs one job at a time; the job puts its worker back among the idle ones just before it delivers its result."""

    def __init__(self) -> None:
        super().__init__(name="turnwise-job", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self.jobs.get()()


# list.append and list.pop are atomic; a hung worker is simply not in the list.
_idle: list[_Worker] = []
# Threads do not survive a fork: a child that took one from the list would wait for ever.
os.register_at_fork(after_in_child=_idle.clear)


async def run_in_thread(job: Callable[[], T]) -> T:
    """The result of `job`, run in a daemon thread, or what it raised.

    Cancelling the wait abandons the thread to its job. What would end a thread or a process (SystemExit,
    KeyboardInterrupt) is raised as RuntimeError, as a job cannot end the run; so is StopIteration, which no coroutine
    can raise.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def deliver(outcome: tuple[T | None, BaseException | None]) -> None:
        if not future.done():
            future.set_result(outcome)

    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()

    def work() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (job(), None)
        except BaseException as cause:  # noqa: BLE001 - carried to the waiting task and raised there
            outcome = (None, cause)
        _idle.append(worker)
        # The loop is closed when the run ended while this job still hung: nothing waits for it.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, outcome)

    worker.jobs.put(work)
    result, error = await future
    if error is None:
        return result  # type: ignore[return-value]
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        raise error
    raise RuntimeError(f"{type(error).__name__}: {error}") from error
