"""Notices that the environment's own reward falls while the recipe's `[rewards]` train: the policy learns what they pay
for, and unlearns the task."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnwise.core.roles import learns, split_roles
from turnwise.core.types import Scored, TrajectoryGroup

FEWEST = 20
"""Fewest groups that are compared, of the beginning and of the latest."""
MOST = 200
"""Most of either that are compared."""
DEVIATIONS = 3.0
"""Least standard errors of the fall."""
ALARM = (
    "alarm: the environment's own reward has fallen since the beginning of the run, while the recipe's rewards train: "
    "the policy learns something else than the task; compare rollout/reward with term/NAME, read the episodes with the "
    'best terms, and stop the run, lower the terms\' weights, or let the environment count (kind = "task")'
)


class GapWatch:
    """Compares the mean own reward of the first groups of the run with that of the latest. Nothing is compared in a run
    without terms, or where the environment always gives the same reward."""

    def __init__(self) -> None:
        self._num_seen = 0
        self._first: list[float] = []
        self._latest: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold; empty in a run without terms."""
        if not self._num_seen:
            return {}
        return {"seen": self._num_seen, "first": list(self._first), "latest": list(self._latest)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._num_seen = state.get("seen", 0)
        self._first, self._latest = list(state.get("first", [])), list(state.get("latest", []))

    def follow(self, groups: Iterable[TrajectoryGroup]) -> list[str]:
        """Count a step's groups; return the alarm while it lasts."""
        for group in groups:
            for part in split_roles(group):
                own = _average(part)
                if own is not None:
                    self._count(own)
        return [ALARM] if self._has_fallen() else []

    def _count(self, own: float) -> None:
        self._num_seen += 1
        if len(self._first) < MOST:
            self._first.append(own)
        self._latest.append(own)
        del self._latest[:-MOST]

    def _has_fallen(self) -> bool:
        """Compared are the first and the last third of the run, or the first and the last `MOST` groups."""
        size = min(self._num_seen // 3, MOST)
        return size >= FEWEST and measure_rise(self._first[:size], self._latest[-size:]) <= -DEVIATIONS


def measure_rise(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the rise of the mean in standard errors (Welch's statistic), infinitely many if neither sample varies."""
    rise = statistics.fmean(after) - statistics.fmean(before)
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(after) / len(after))
    return rise / error if error else math.copysign(math.inf, rise) if rise else 0.0


def _average(part: TrajectoryGroup) -> float | None:
    """Return the mean own reward of a role's group; None if it has no terms, nothing was scored or the role does not
    learn."""
    own = [t.reward.total for t in part.trajectories if isinstance(t.reward, Scored) and t.terms]
    return statistics.fmean(own) if own and learns(part) else None
