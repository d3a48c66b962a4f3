"""The trainer on a thread of its own, so that the event loop goes on while it computes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from turnwise.core.batch import Columns, StepReport, TrainingBatch, Wanted
from turnwise.core.protocols import Trainer
from turnwise.core.types import Sample
from turnwise.models.threads import build_executor

T = TypeVar("T")


class TrainerThread:
    """A `Trainer` whose calls are awaited. One call runs at a time, always on the same thread."""

    def __init__(self, trainer: Trainer, *, num_threads: int) -> None:
        self.trainer = trainer
        self._pool = build_executor(num_threads, "trainer")

    async def run(self, work: Callable[[], T]) -> T:
        """Anything that reads or changes the trained models, on their thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def score(
        self, samples: Sequence[Sample], wanted: frozenset[Wanted], *, outcomes: Sequence[float] | None = None
    ) -> Columns:
        """See `Trainer.score`."""
        return await self.run(partial(self.trainer.score, samples, wanted, outcomes=outcomes))

    async def step(self, batch: TrainingBatch) -> StepReport:
        """See `Trainer.step`."""
        return await self.run(partial(self.trainer.step, batch))

    async def save(self, folder: Path, counters: Mapping[str, Any]) -> None:
        """See `Trainer.save`."""
        await self.run(partial(self.trainer.save, folder, counters))

    async def load(self, folder: Path) -> Mapping[str, Any]:
        """See `Trainer.load`."""
        return await self.run(partial(self.trainer.load, folder))

    def close(self) -> None:
        """Wait for the call that runs and end the thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)
