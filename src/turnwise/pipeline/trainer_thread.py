"""Runs the trainers on their own thread, so that the event loop continues while they compute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from turnwise.core.batch import Columns, StepReport, TrainingBatch, Wanted
from turnwise.core.protocols import ClosableTrainer, RememberingTrainer, Trainer
from turnwise.core.types import Sample
from turnwise.models.threads import build_executor
from turnwise.store.checkpoint_folder import policy_folder

T = TypeVar("T")


class TrainerThread:
    """Trainers whose calls are awaited. One call runs at a time, always on the same thread."""

    def __init__(
        self, trainer: Trainer, *, num_threads: int, others: Mapping[str, RememberingTrainer] | None = None
    ) -> None:
        """`others` are the trainers of further learners, by name; the first learner's name is empty."""
        self.trainer = trainer
        self._others = dict(others or {})
        self._trainers: dict[str, Trainer] = {"": trainer, **self._others}
        self._pool = build_executor(num_threads, "trainer")

    async def run(self, work: Callable[[], T]) -> T:
        """Run work that reads or changes the trained models on their thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    @property
    def learners(self) -> list[str]:
        """Names of all learners; the first one's is empty."""
        return list(self._trainers)

    async def score(
        self,
        samples: Sequence[Sample],
        wanted: frozenset[Wanted],
        *,
        outcomes: Sequence[float] | None = None,
        learner: str = "",
    ) -> Columns:
        """See `Trainer.score`."""
        return await self.run(partial(self._trainers[learner].score, samples, wanted, outcomes=outcomes))

    async def step(self, batches: Mapping[str, TrainingBatch]) -> dict[str, StepReport]:
        """Run a step of some learners, each on its own batch. Changes all of them or, if it raises TrainingError,
        none."""
        return await self.run(partial(self._step, batches))

    def _step(self, batches: Mapping[str, TrainingBatch]) -> dict[str, StepReport]:
        if len(batches) == 1:
            return {name: self._trainers[name].step(batch) for name, batch in batches.items()}
        # Named learners go first: they can be restored, and the last one changes all or nothing by itself.
        put_back: list[Callable[[], None]] = []
        reports: dict[str, StepReport] = {}
        try:
            for name in sorted(batches, reverse=True):
                if name:
                    put_back.append(self._others[name].remember())
                reports[name] = self._trainers[name].step(batches[name])
        except BaseException:
            for undo in put_back:
                undo()
            raise
        return {name: reports[name] for name in batches}

    async def save(self, folder: Path, counters: Mapping[str, Any]) -> None:
        """See `Trainer.save`; a named learner has its own folder inside `folder`."""
        await self.run(partial(self._save, folder, counters))

    def _save(self, folder: Path, counters: Mapping[str, Any]) -> None:
        for name, trainer in self._trainers.items():
            policy_folder(folder, name).mkdir(parents=True, exist_ok=True)
            trainer.save(policy_folder(folder, name), counters)

    async def load(self, folder: Path) -> Mapping[str, Any]:
        """See `Trainer.load`. Returns the counters of the first learner."""
        return await self.run(partial(self._load, folder))

    def _load(self, folder: Path) -> Mapping[str, Any]:
        return {name: trainer.load(policy_folder(folder, name)) for name, trainer in self._trainers.items()}[""]

    def close(self) -> None:
        """Wait for the running call, then end the thread and the trainers' processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for trainer in self._trainers.values():
            if isinstance(trainer, ClosableTrainer):
                trainer.close()
