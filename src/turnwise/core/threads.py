"""Daemon threads for blocking calls that may never return.

Unlike `concurrent.futures`, nothing here is joined at exit: a call that hangs costs one thread and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Worker(threading.Thread):
    """Runs one job at a time; a job returns its worker to the idle list just before it delivers its result."""

    def __init__(self) -> None:
        super().__init__(name="turnwise-job", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self.jobs.get()()


# list.append and list.pop are atomic; a worker that hangs, or belongs to an owner, is simply not in the list.
_idle: list[_Worker] = []
# Threads do not survive a fork: a child that took one from the list would wait for ever.
os.register_at_fork(after_in_child=_idle.clear)


def _take_worker() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
        return worker


async def run_in_thread(job: Callable[[], T]) -> T:
    """Run `job` in a daemon thread; returns its result or raises what it raised.

    Cancelling the wait abandons the thread to its job. An exception that would end a thread or a process (SystemExit,
    KeyboardInterrupt) is raised as RuntimeError, as a job cannot end the run; so is StopIteration, which a coroutine
    cannot raise.
    """
    worker = _take_worker()
    return await _run_on(worker, job, lambda: _idle.append(worker))


class OwnThread:
    """A daemon thread for one owner: its jobs run there in order, each as in `run_in_thread`.

    For objects that belong to a thread: an SQLite connection, a browser, a graphics context. The thread is assigned at
    the first job.
    """

    def __init__(self) -> None:
        self._worker: _Worker | None = None
        self._num_open = 0

    @property
    def is_busy(self) -> bool:
        """Whether a job is running or waiting, for instance one that hangs and was abandoned: a further job would wait
        for it."""
        return self._num_open > 0

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job`; returns its result or raises what it raised."""
        if self._worker is None or not self._worker.is_alive():  # none survives a fork
            self._worker = _take_worker()
        self._num_open += 1
        return await _run_on(self._worker, job, self._end)

    def _end(self) -> None:
        self._num_open -= 1

    def free(self) -> None:
        """Return the thread to the pool when its jobs have ended. A later job is assigned another one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.jobs.put(lambda: _idle.append(worker))

    def __del__(self) -> None:
        self.free()


async def _run_on(worker: _Worker, job: Callable[[], T], end: Callable[[], None]) -> T:
    """Run `job` on that thread and return its result; the thread calls `end` after the job, before the result
    arrives."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def deliver(outcome: tuple[T | None, BaseException | None]) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (job(), None)
        except BaseException as cause:  # noqa: BLE001 - carried to the waiting task and raised there
            outcome = (None, cause)
        end()
        # The loop is closed if the run ended while this job was still hanging: nothing waits for it.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, outcome)

    worker.jobs.put(work)
    result, error = await future
    if error is None:
        return result  # type: ignore[return-value]
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        raise error
    raise RuntimeError(f"{type(error).__name__}: {error}") from error


async def run_method(method: Callable[..., Any], *arguments: Any, thread: OwnThread | None = None) -> Any:
    """Call a plain or `async` function and return its result: a plain one runs in `thread`, or in one from the pool.

    If a plain function returns an awaitable, it is awaited here.
    """
    if inspect.iscoroutinefunction(method):
        return await method(*arguments)
    run = run_in_thread if thread is None else thread.run
    result = await run(lambda: method(*arguments))
    return await result if inspect.isawaitable(result) else result
