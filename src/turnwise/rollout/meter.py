"""Measures how long engines had something to sample, and why they were idle the rest of the time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from turnwise.core.asking import ask_engine
from turnwise.core.occupancy import Level, Occupancy
from turnwise.core.protocols import Engine
from turnwise.core.types import Completion, IntArray, Prompt, SamplingParams, Session


class Meter(ABC):
    """Counts the seconds with at least one request open."""

    def __init__(self) -> None:
        self.open_sessions: Counter[Session] = Counter()
        """Open requests per session."""
        self.num_replies = 0
        """Number of requests that have ended."""
        self._idle = "admission"
        now = time.perf_counter()
        self._occupancy, self._open = Occupancy(self._idle, now), Level(now)

    @property
    @abstractmethod
    def version(self) -> int:
        """Version of the weights that sample replies."""

    @property
    def busy_s(self) -> float:
        """Seconds so far with a request open."""
        return self.seconds().get("sampling", 0.0)

    def seconds(self) -> dict[str, float]:
        """Seconds so far: "sampling" with a request open, otherwise by the cause given to `explain_idle`."""
        return self._occupancy.seconds(time.perf_counter())

    def explain_idle(self, cause: str) -> None:
        """Set the cause of idle time from now on: waiting for "tools", "annotators" or "admission"."""
        self._idle = cause
        self.look()

    def look(self) -> None:
        """Account for the time so far; count from now on according to `open_sessions`."""
        now = time.perf_counter()
        self._occupancy.switch("sampling" if self.open_sessions else self._idle, now)
        self._open.set(self.open_sessions.total(), now)

    def take_open(self) -> tuple[float, float, float]:
        """Return, since the last call: open requests times seconds, the seconds, and the most requests open at once."""
        return self._open.take(time.perf_counter())

    def read_counts(self) -> Mapping[str, float]:
        """Return the engine's counts since its start, by the names of `engines.paged.EngineStatistics`; empty if it
        does not count."""
        return {}


class MeteredEngine(Meter):
    """Passes every call on to `engine` and meters it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        """The metered engine."""
        self.tell_switch: Callable[[], None] | None = None
        """Called when the engine begins or ceases to have open requests; None calls nothing."""

    @property
    def version(self) -> int:
        """See `Engine.version`."""
        return self.engine.version

    async def generate(self, prompt_ids: IntArray, params: SamplingParams, *, session: Session) -> Completion:
        """See `Engine.generate`."""
        return await self.generate_seeing(Prompt(token_ids=prompt_ids), params, session=session)

    async def generate_seeing(self, prompt: Prompt, params: SamplingParams, *, session: Session) -> Completion:
        """See `ask_engine`: pictures are refused where the metered engine takes text only."""
        self._count(session, 1)
        try:
            return await ask_engine(self.engine, prompt, params, session)
        finally:
            self.num_replies += 1
            self._count(session, -1)

    async def release(self, session: Session) -> None:
        """See `Engine.release`."""
        await self.engine.release(session)

    async def close(self) -> None:
        """See `Engine.close`."""
        await self.engine.close()

    def read_counts(self) -> Mapping[str, float]:
        """See `Meter.read_counts`."""
        statistics = getattr(self.engine, "statistics", None)
        counts: Any = statistics() if callable(statistics) else {}
        return asdict(counts) if is_dataclass(counts) and not isinstance(counts, type) else dict(counts)

    def _count(self, session: Session, change: int) -> None:
        was_busy = bool(self.open_sessions)
        self.open_sessions[session] += change
        if not self.open_sessions[session]:
            del self.open_sessions[session]
        self.look()
        if bool(self.open_sessions) != was_busy and self.tell_switch is not None:
            self.tell_switch()
