"""The processes that evaluate a run beside its training, as the training process sees them."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import EngineError
from turnwise.engines.workers.link import Link
from turnwise.engines.workers.programs import start_program
from turnwise.hosts.host import Program, import_path
from turnwise.hosts.local import LocalHost
from turnwise.runs.remote import SILENCE_S, START_S

MAX_LOST = 2
"""Times that an evaluation is played again because its process ended."""

Start = Callable[[str], Awaitable[Link]]
"""Starts the process with a name, and waits until it is ready."""


class EvaluationFleet:
    """Plays whole evaluations in processes of their own, each with an engine on the checkpoint of a step.

    Processes start with the first evaluations and stay. One that ends takes its evaluation with it, which another plays
    from its beginning. Belongs to the event loop that first uses it.
    """

    def __init__(self, start: Start, *, num_workers: int) -> None:
        self.num_workers = num_workers
        self._start = start
        self._places = asyncio.Semaphore(num_workers)
        self._idle: list[Link] = []
        self._open: set[Link] = set()
        self._numbers = itertools.count()

    async def play(self, step: int) -> Mapping[str, Any]:
        """The outcome of the evaluation of RL step `step`, as plain data. Raises EngineError with its error, or where
        its process ended too often."""
        async with self._places:
            for number in itertools.count():
                link = await self._take()
                try:
                    outcome: Mapping[str, Any] = await link.ask("evaluate", step=step)
                except EngineError:
                    if link.is_open or number == MAX_LOST:
                        raise
                    continue
                finally:
                    self._leave(link)
                return outcome
        raise AssertionError("the last attempt either returns or raises")

    def pids(self) -> list[int]:
        """Process ids of the running processes."""
        return [link.pid for link in self._open if link.is_open and link.pid is not None]

    def close(self) -> None:
        """End all processes; their evaluations are lost."""
        for link in self._open:
            link.end("was stopped: the run ends", is_loss=False)

    async def _take(self) -> Link:
        while self._idle:
            link = self._idle.pop()
            if link.is_open:
                return link
        link = await self._start(f"evaluation process {next(self._numbers)}")
        self._open.add(link)
        return link

    def _leave(self, link: Link) -> None:
        if link.is_open:
            self._idle.append(link)
        else:
            self._open.discard(link)


def build_fleet(config: RunConfig, run: Path) -> EvaluationFleet:
    """The processes that evaluate the checkpoints of a run, on this machine."""
    logs = Path(tempfile.mkdtemp(prefix="turnwise-evaluations-"))
    threads = {"OMP_NUM_THREADS": str(config.engine.num_threads)} if config.engine.num_threads else {}
    host = LocalHost()

    async def start(name: str) -> Link:
        return await start_program(
            host,
            Program(
                name=name,
                arguments=(sys.executable, "-m", "turnwise.runs.evaluation_process"),
                environment={**import_path(), **threads},
                log=logs / f"{name.replace(' ', '-')}.log",
            ),
            {"config": dump_resolved(config), "run": str(run.absolute())},
            folders={},
            start_s=START_S,
            silence_s=SILENCE_S,
        )

    fleet = EvaluationFleet(start, num_workers=max(1, config.evaluate.num_workers))
    weakref.finalize(fleet, shutil.rmtree, logs, ignore_errors=True)
    return fleet
