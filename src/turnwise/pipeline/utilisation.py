"""Where the time of engine and trainer went in each step: busy seconds and idle seconds by cause, which add up to all
of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from turnwise.core.metrics import Max, Mean, Metric, Sum
from turnwise.core.occupancy import Occupancy
from turnwise.rollout.meter import Meter

ENGINE = ("sampling", "tools", "annotators", "admission")
"""Busy, then idle because members wait for their environments, because complete groups wait for annotators and the
disk, or because no group may open."""
TRAINER = ("training", "publishing", "after_step", "unfinished", "deadline")
"""Busy; sending weights to engines; checkpoints and evaluations; then idle because too few groups have finished, or
because a late group must train first."""

PICTURE_COUNTS = ("num_encoded_pictures", "num_reused_pictures", "num_image_places")
"""Counts of an engine that shows its model pictures."""


class Utilisation:
    """Seconds by state, from one step's metrics to the next."""

    def __init__(self, engine: Meter) -> None:
        self._engine = engine
        now = time.perf_counter()
        self._trainer = Occupancy("unfinished", now)
        self._taken_at = now
        self._taken: dict[str, float] = {}
        self._taken = self._read(now)
        self._counts = engine.read_counts()
        engine.take_open()

    @property
    def trainer(self) -> str:
        """The trainer's present state, one of `TRAINER`."""
        return self._trainer.state

    def switch_trainer(self, state: str) -> None:
        """Set the trainer's state to one of `TRAINER` from now on; "busy" is the gate's name for a trainer still
        occupied with the end of the last step."""
        self._trainer.switch("after_step" if state == "busy" else state, time.perf_counter())

    def take_metrics(self) -> Mapping[str, Metric]:
        """Return the seconds since the last call, total and by state of engine and trainer, and the engine's counts."""
        now = time.perf_counter()
        seconds = self._read(now)
        metrics: dict[str, Metric] = {
            f"schedule/{name}_seconds": Sum(seconds[name] - self._taken[name]) for name in seconds
        }
        metrics["schedule/seconds"] = Sum(now - self._taken_at)
        self._taken, self._taken_at = seconds, now
        area, passed_s, largest = self._engine.take_open()
        metrics |= {"schedule/open_requests_mean": Mean(area, passed_s), "schedule/open_requests_max": Max(largest)}
        before, self._counts = self._counts, self._engine.read_counts()
        return metrics | describe_counts(before, self._counts)

    def _read(self, now: float) -> dict[str, float]:
        engine, trainer = self._engine.seconds(), self._trainer.seconds(now)
        return {
            **{f"engine_{state}": engine.get(state, 0.0) for state in ENGINE},
            **{f"trainer_{state}": trainer.get(state, 0.0) for state in TRAINER},
        }


def describe_counts(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Metric]:
    """Return what an engine did between two readings of its counts. A count that decreased comes from a new process and
    is used as it is. Empty for an engine that does not count."""

    def count(name: str) -> float:
        now = after.get(name, 0)
        risen = now - before.get(name, 0)
        return risen if risen >= 0 else now

    if not {"num_computed_tokens", "num_reused_tokens"} <= after.keys():
        return {}
    computed, reused = count("num_computed_tokens"), count("num_reused_tokens")
    return {
        "schedule/computed_tokens": Sum(computed),
        **({"schedule/reused_share": Mean(reused, reused + computed)} if reused + computed else {}),
        "schedule/preemptions": Sum(count("num_preemptions")),
        "schedule/evicted_pages": Sum(count("num_evicted_pages")),
        "schedule/held_pages": Mean(after["num_held_pages"]),
        **_describe_pictures(count("computing_s"), count("encode_s"), [count(name) for name in PICTURE_COUNTS]),
    }


def _describe_pictures(computing_s: float, encode_s: float, counts: Sequence[float]) -> dict[str, Metric]:
    encoded, reused, places = counts
    if not any(counts):
        return {}
    return {
        "rollout/encode_s": Sum(encode_s),
        "rollout/encode_share": Mean(encode_s, computing_s),
        "rollout/encoded_pictures": Sum(encoded),
        "rollout/reused_pictures": Mean(reused, reused + encoded),
        "rollout/image_places": Sum(places),
    }
