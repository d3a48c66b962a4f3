"""Where the time of engine and trainer went, step by step: busy and idle seconds by cause add up to all of it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from turnwise.core.metrics import Metric, Sum
from turnwise.core.occupancy import Occupancy
from turnwise.rollout.meter import Meter

ENGINE = ("sampling", "tools", "annotators", "admission")
"""Busy, then idle: members wait for their environments; complete groups for annotators and the disk; or no group may
open."""
TRAINER = ("training", "publishing", "after_step", "unfinished", "deadline")
"""Busy; weights on their way to engines; checkpoints and evaluations; then idle: too few groups have finished, or a
late group must train first."""


class Utilisation:
    """Seconds by state, from one step's metrics to the next."""

    def __init__(self, engine: Meter) -> None:
        self._engine = engine
        now = time.perf_counter()
        self._trainer = Occupancy("unfinished", now)
        self._taken_at = now
        self._taken: dict[str, float] = {}
        self._taken = self._read(now)

    @property
    def trainer(self) -> str:
        """Which of `TRAINER` it is in."""
        return self._trainer.state

    def switch_trainer(self, state: str) -> None:
        """The trainer is in one of `TRAINER` from now on; "busy" is what the gate calls one that the last step's end
        still keeps."""
        self._trainer.switch("after_step" if state == "busy" else state, time.perf_counter())

    def take_metrics(self) -> Mapping[str, Metric]:
        """Seconds since the last call, in all and by state of engine and trainer."""
        now = time.perf_counter()
        seconds = self._read(now)
        metrics = {f"schedule/{name}_seconds": Sum(seconds[name] - self._taken[name]) for name in seconds}
        metrics["schedule/seconds"] = Sum(now - self._taken_at)
        self._taken, self._taken_at = seconds, now
        return metrics

    def _read(self, now: float) -> dict[str, float]:
        engine, trainer = self._engine.seconds(), self._trainer.seconds(now)
        return {
            **{f"engine_{state}": engine.get(state, 0.0) for state in ENGINE},
            **{f"trainer_{state}": trainer.get(state, 0.0) for state in TRAINER},
        }
