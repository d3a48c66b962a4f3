"""Steps of an engine, one after another: planned and settled on the event loop, computed in an executor of one thread.

The event loop stays responsive while a step is computed. The computation must not read what the event loop changes
meanwhile: an engine defers such changes to `settle`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from turnwise.core.errors import EngineError, TurnwiseError, boundary
from turnwise.models.threads import build_executor

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

STEP_S = 600.0
"""Longest time in seconds that a single step may take before waiting for it fails."""


class Steps(Protocol[P, R]):
    """The operations of an engine's step."""

    def plan(self) -> P | None:
        """Return the next step, or None if there is nothing to compute. Called on the event loop."""
        ...

    def compute(self, plan: P, /) -> R:
        """Compute the step, in the executor; changes nothing that the event loop reads before `settle`."""
        ...

    def settle(self, plan: P, result: R, /) -> None:
        """Record the results. Called on the event loop."""
        ...

    def fail(self, error: EngineError, /) -> None:
        """Fail every request: the step could not be computed."""
        ...


class Pump(Generic[P, R]):
    """Runs steps while there are any. Belongs to one event loop at a time; can be built without one."""

    def __init__(self, steps: Steps[P, R], *, num_threads: int, executor: ThreadPoolExecutor | None = None) -> None:
        """`executor` has one thread and is shut down by the caller; None builds one with `num_threads`."""
        self._steps = steps
        self._executor = executor or build_executor(num_threads, "engine")
        self._owns_executor = executor is None
        self._task: asyncio.Task[None] | None = None
        self.is_paused = False
        self.is_closed = False
        self.is_computing = False
        """Whether the executor computes a step right now."""
        self.computing_s = 0.0
        """Seconds spent in steps."""

    def start(self) -> None:
        """Run steps until `plan` returns None, unless paused."""
        if not self.is_paused and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def pause(self) -> None:
        """Stop at the end of the running step. Raises EngineError if that takes longer than `STEP_S`."""
        self.is_paused = True
        await self.wait_for_step()

    async def drain(self) -> None:
        """Wait until `plan` has no further step. May take as long as replies take; the caller sets the deadline."""
        while not self.is_paused and self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def resume(self) -> None:
        """Continue after `pause`."""
        self.is_paused = False

    async def wait_for_step(self) -> None:
        """Wait for running steps to end: for one step if the pump is paused."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=STEP_S)
            if not self._task.done():
                raise EngineError(f"the engine did not stop: a step has been running for {STEP_S:g} s")

    async def run(self, work: Callable[[], T]) -> T:
        """Call `work` in the executor, between two steps."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def close(self) -> None:
        """Stop at the end of the running step and shut down the executor if the pump built it."""
        self.is_closed = True
        try:
            await self.pause()
        finally:
            if self._owns_executor:
                self._executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        # Requests made in the same iteration of the event loop share the first step.
        await asyncio.sleep(0)
        try:
            with boundary(EngineError, "the engine step failed"):
                while not self.is_paused and (plan := self._steps.plan()) is not None:
                    await self._step(plan)
                    # Two iterations of the event loop: one wakes the finished requests, one lets their environments
                    # answer.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
        except TurnwiseError as error:
            self._steps.fail(EngineError(str(error)))

    async def _step(self, plan: P) -> None:
        began = time.monotonic()
        self.is_computing = True
        job = self._executor.submit(self._steps.compute, plan)
        try:
            await asyncio.shield(asyncio.wrap_future(job))
        except asyncio.CancelledError:
            # The event loop is ending. The step's results must be settled before the engine is used again.
            concurrent.futures.wait([job], timeout=STEP_S)
            raise
        finally:
            self.is_computing = False
            self.computing_s += time.monotonic() - began
            if job.done() and job.exception() is None:
                self._steps.settle(plan, job.result())
