"""Notices that the reward that trains rises while the environment's own reward falls: the policy learns what the
recipe's `[rewards]` pay for, and unlearns the task."""

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
"""Least standard errors of the fall, and of the rise."""
ALARM = (
    "alarm: the reward that trains has risen since the beginning of the run and the environment's own reward has "
    "fallen: the policy learns something else than the task; compare term/NAME with rollout/reward, read the episodes "
    'with the best terms, and stop the run, lower the terms\' weights, or let the environment count (kind = "task")'
)

Pair = tuple[float, float]
"""Mean of a group's own rewards, and of those that train."""


class GapWatch:
    """Compares both rewards in the first groups of the run and in the latest. Nothing is compared in a run without
    terms, or where the environment always gives the same reward."""

    def __init__(self) -> None:
        self._num_seen = 0
        self._first: list[Pair] = []
        self._latest: list[Pair] = []

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold; empty in a run without terms."""
        if not self._num_seen:
            return {}
        return {"seen": self._num_seen, "first": [*map(list, self._first)], "latest": [*map(list, self._latest)]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._num_seen = state.get("seen", 0)
        self._first, self._latest = (
            [(own, credited) for own, credited in state.get(name, [])] for name in ("first", "latest")
        )

    def follow(self, groups: Iterable[TrajectoryGroup]) -> list[str]:
        """Count a step's groups; return the alarm while it lasts."""
        for group in groups:
            for part in split_roles(group):
                pair = _average(part)
                if pair is not None:
                    self._count(pair)
        return [ALARM] if self._has_gap() else []

    def _count(self, pair: Pair) -> None:
        self._num_seen += 1
        if len(self._first) < MOST:
            self._first.append(pair)
        self._latest.append(pair)
        del self._latest[:-MOST]

    def _has_gap(self) -> bool:
        """Compared are the first and the last third of the run, or the first and the last `MOST` groups."""
        size = min(self._num_seen // 3, MOST)
        if size < FEWEST:
            return False
        first, latest = self._first[:size], self._latest[-size:]
        own, credited = (measure_rise([p[i] for p in first], [p[i] for p in latest]) for i in (0, 1))
        return own <= -DEVIATIONS and credited >= DEVIATIONS


def measure_rise(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the rise of the mean in standard errors (Welch's statistic), infinitely many if neither sample varies."""
    rise = statistics.fmean(after) - statistics.fmean(before)
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(after) / len(after))
    return rise / error if error else math.copysign(math.inf, rise) if rise else 0.0


def _average(part: TrajectoryGroup) -> Pair | None:
    """Return the pair of a role's group; None if it has no terms, nothing was scored or the role does not learn."""
    scored = [t for t in part.trajectories if isinstance(t.reward, Scored) and t.terms]
    if not scored or not learns(part):
        return None
    own = statistics.fmean(t.reward.total for t in scored if isinstance(t.reward, Scored))
    return own, statistics.fmean(t.credited or 0.0 for t in scored)
