"""How long an engine had something to sample, and why it had nothing the rest of the time."""

from __future__ import annotations

import time
from collections import Counter

from turnwise.core.occupancy import Occupancy
from turnwise.core.protocols import Engine
from turnwise.core.types import Completion, IntArray, SamplingParams, Session


class MeteredEngine:
    """Passes everything on to `engine` and counts the seconds with at least one request open."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        """The engine that is metered."""
        self.open_sessions: Counter[Session] = Counter()
        """Of the requests that are open."""
        self.num_replies = 0
        """Requests that have ended."""
        self._idle = "admission"
        self._occupancy = Occupancy(self._idle, time.perf_counter())

    @property
    def version(self) -> int:
        """See `Engine.version`."""
        return self.engine.version

    @property
    def busy_s(self) -> float:
        """Seconds so far in which a request was open."""
        return self.seconds().get("sampling", 0.0)

    def seconds(self) -> dict[str, float]:
        """Seconds so far with a request open, "sampling", and without one, by the cause that `explain_idle` gave."""
        return self._occupancy.seconds(time.perf_counter())

    def explain_idle(self, cause: str) -> None:
        """Why the engine is idle where it is, from now on: "tools" or "annotators" are waited for, or "admission"."""
        self._idle = cause
        if not self.open_sessions:
            self._occupancy.switch(cause, time.perf_counter())

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`."""
        if not self.open_sessions:
            self._occupancy.switch("sampling", time.perf_counter())
        self.open_sessions[session] += 1
        try:
            return await self.engine.generate(prompt_ids, params, session=session)
        finally:
            self.num_replies += 1
            self.open_sessions[session] -= 1
            if not self.open_sessions[session]:
                del self.open_sessions[session]
            if not self.open_sessions:
                self._occupancy.switch(self._idle, time.perf_counter())

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        await self.engine.release(session)

    async def close(self) -> None:
        """See `Engine.close`."""
        await self.engine.close()
