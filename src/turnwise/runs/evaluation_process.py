"""An evaluation process: it plays whole evaluations of a run, each with the checkpoint of its step.

    PYTHON -m turnwise.runs.evaluation_process SOCKET_FD PARENT_PID

The first message tells the recipe and the run folder. It writes the files of its evaluations and nothing else: metrics
and events are the training process's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from turnwise.config.run import RunConfig
from turnwise.core.errors import EngineError
from turnwise.core.protocols import Engine, PausableEngine
from turnwise.engines.workers.serving import Say, follow_parent, serve
from turnwise.models.checksums import find_difference, join_sums
from turnwise.pictures.store import open_pictures
from turnwise.runs.build import System, build_system
from turnwise.runs.evaluations import play_evaluation
from turnwise.store.checkpoint_folder import verify_checkpoint
from turnwise.store.journal import read_journal
from turnwise.store.run_folder import RunFolder
from turnwise.training.state import read_counters

NICENESS = 5
"""How much it yields to rollouts and training where cores are few."""


def main() -> None:
    """The whole life of an evaluation process."""
    number, parent_pid = sys.argv[1:]
    if follow_parent(int(parent_pid)):
        with contextlib.suppress(OSError):
            os.nice(NICENESS)
        asyncio.run(serve(socket.socket(fileno=int(number)), _build, None))


async def _build(settings: Mapping[str, Any], say: Say) -> _EvaluationProcess:
    config = RunConfig.model_validate(settings["config"])
    torch.set_num_threads(max(1, config.engine.num_threads))
    return _EvaluationProcess(config=config, folder=RunFolder(Path(settings["run"])))


@dataclass(slots=True, kw_only=True)
class _EvaluationProcess:
    """Implements `Service`."""

    config: RunConfig
    folder: RunFolder

    @property
    def is_computing(self) -> bool:
        """Whether it cannot send heartbeats; they come between the engine's steps."""
        return False

    def statistics(self) -> Mapping[str, Any]:
        return {}

    async def answer(self, message: Mapping[str, Any]) -> Any:
        if message["kind"] != "evaluate":
            raise EngineError(f"unknown message kind {message['kind']!r} for an evaluation process")
        step = int(message["step"])
        checkpoint = self.folder.path / "checkpoints" / f"step_{step:06d}"
        verify_checkpoint(checkpoint)
        system = build_system(self.config, checkpoint, pictures=open_pictures(self.folder.path))
        if system.past is not None:
            system.past.run = self.folder.path
        try:
            await self._adopt(system, checkpoint, step)
            return asdict(await play_evaluation(system, self.folder, step=step))
        finally:
            await system.close()

    async def _adopt(self, system: System, checkpoint: Path, step: int) -> None:
        """Sample under the version of the checkpoint's weights. Raises EngineError naming a tensor in which they differ
        from what the journal says that the step left."""
        version = int(read_counters(checkpoint)["version"])
        engines: dict[str, Engine] = {"": system.engine.engine}
        engines |= {name: other.engine for name, other in system.others.items()}
        sums = {name: await each.adopt(version) for name, each in engines.items() if isinstance(each, PausableEngine)}
        trained = read_journal(self.folder.path).trained.get(step)
        if trained is None or len(sums) < len(engines):
            return
        if tensor := find_difference(trained.sums, join_sums(sums)):
            raise EngineError(f"{tensor} in {checkpoint} differs from what step {step} left; train from another one")


if __name__ == "__main__":
    main()
