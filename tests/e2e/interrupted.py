"""Runs that Ctrl-C stops at a chosen place, to be resumed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise.building.checks import check_methods
from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.core.events import Event, PhaseBegins, StepEnds
from turnwise.reporting.console import Display
from turnwise.runs.build import build_system
from turnwise.runs.train import Run
from turnwise.store.run_folder import RunFolder


class StopWhen(Display):
    """A display that raises KeyboardInterrupt at the first event for which `is_time` is true."""

    def __init__(self, is_time: Callable[[Event], bool]) -> None:
        super().__init__(total_steps=1, title="stop", enabled=False)
        self._is_time = is_time

    def record(self, event: Event) -> None:
        """See `Recorder.record`."""
        if self._is_time(event):
            raise KeyboardInterrupt


def at_step(step: int) -> StopWhen:
    """Stops when RL step `step` has been recorded, before its checkpoint."""
    return StopWhen(lambda event: isinstance(event, StepEnds) and (event.phase, event.step) == ("train", step))


def at_evaluation(number: int) -> StopWhen:
    """Stops when evaluation `number`, counted from 1, begins."""
    seen: list[Event] = []

    def is_time(event: Event) -> bool:
        if isinstance(event, PhaseBegins) and event.phase == "evaluate":
            seen.append(event)
        return len(seen) == number

    return StopWhen(is_time)


def train_until(config: RunConfig, path: Path, stop: StopWhen) -> Path:
    """Train into the new run folder `path` until `stop` interrupts, which it must."""
    config = check_methods(config)
    folder = RunFolder.create(path)
    folder.write_json("config.json", dump_resolved(config))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Run(build_system(config, training=True), folder, stop).run())
    return path
