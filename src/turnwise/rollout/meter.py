"""How long an engine had something to sample: the other side of its idle time."""

from __future__ import annotations

import time

from turnwise.core.protocols import Engine
from turnwise.core.types import Completion, IntArray, SamplingParams, Session


class MeteredEngine:
    """Passes everything on to `engine` and counts the seconds with at least one request open."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        """The engine that is metered."""
        self._num_open = 0
        self._since = 0.0
        self._busy_s = 0.0

    @property
    def version(self) -> int:
        """See `Engine.version`."""
        return self.engine.version

    @property
    def busy_s(self) -> float:
        """Seconds so far in which a request was open."""
        return self._busy_s + (time.perf_counter() - self._since if self._num_open else 0.0)

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`."""
        if not self._num_open:
            self._since = time.perf_counter()
        self._num_open += 1
        try:
            return await self.engine.generate(prompt_ids, params, session=session)
        finally:
            self._num_open -= 1
            if not self._num_open:
                self._busy_s += time.perf_counter() - self._since

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        await self.engine.release(session)

    async def close(self) -> None:
        """See `Engine.close`."""
        await self.engine.close()
