"""A bandit over kinds of tasks: those whose solve rate changes fastest are drawn most.

Progress is the distance between a fast and a slow moving average of a kind's mean reward, up or down, as in
"bidirectional learning progress" (arXiv 2106.14876). Deviations: no reweighting of solve rates and no sigmoid, chances
are in proportion to progress, and every kind keeps a share (the exploration of arXiv 1707.00183).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from turnwise.config.section import Section
from turnwise.curriculum.choosing import choose_new, draw_weighted, list_drawable
from turnwise.curriculum.sampler import Choice, OfferedTasks, SamplerKind, TaskResult


class ProgressOptions(Section):
    """Options of `progress`."""

    fast: float = Field(0.1, gt=0, le=1)
    """Weight of a group's mean reward in the fast average."""
    slow: float = Field(0.02, gt=0, le=1)
    """Weight of a group's mean reward in the slow average."""
    floor: float = Field(0.2, ge=0, le=1)
    """Share of draws that are spread evenly over all kinds."""

    @model_validator(mode="after")
    def _check(self) -> ProgressOptions:
        if self.slow >= self.fast:
            raise ValueError(f"slow={self.slow:g} must be below fast={self.fast:g}")
        return self


class ProgressSampler:
    """Implements `Sampler`."""

    def __init__(self, options: ProgressOptions) -> None:
        self._options = options
        self._averages: dict[str, tuple[float, float]] = {}
        """Fast and slow average of each kind that has results."""

    def compute_chances(self, kinds: Sequence[str]) -> dict[str, float]:
        """Return the chance of each kind. One without results counts as one with the most progress; if none has any,
        all are equal."""
        known = {kind: abs(fast - slow) for kind, (fast, slow) in self._averages.items()}
        most = max((known[kind] for kind in kinds if kind in known), default=0.0) or 1.0
        progress = {kind: known.get(kind, most) for kind in kinds}
        total = sum(progress.values())
        even = 1 / max(len(kinds), 1)
        shares = {kind: progress[kind] / total if total else even for kind in kinds}
        return {kind: self._options.floor * even + (1 - self._options.floor) * shares[kind] for kind in kinds}

    def choose(self, offered: OfferedTasks, luck: Sequence[float]) -> Choice | None:
        """See `Sampler`."""
        kind = draw_weighted(self.compute_chances(list_drawable(offered)), luck[0])
        return None if kind is None else choose_new(offered, luck[1], kind=kind, pool=kind or "all")

    def observe(self, results: Sequence[TaskResult], step: int) -> None:
        """See `Sampler`. The first result of a kind is both its averages."""
        for result in results:
            fast, slow = self._averages.get(result.kind, (result.mean, result.mean))
            fast += self._options.fast * (result.mean - fast)
            slow += self._options.slow * (result.mean - slow)
            self._averages[result.kind] = fast, slow

    def measure(self) -> Mapping[str, float]:
        """The chance of every kind with results."""
        return {f"chance_{kind or 'all'}": chance for kind, chance in self.compute_chances([*self._averages]).items()}

    def state_dict(self) -> dict[str, Any]:
        """See `Sampler`."""
        return {"averages": {kind: list(averages) for kind, averages in self._averages.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Sampler`."""
        self._averages = {kind: (fast, slow) for kind, (fast, slow) in state["averages"].items()}


PROGRESS = SamplerKind(
    name="progress",
    summary="kinds in proportion to how fast their solve rate changes",
    formula="P(kind) = floor / kinds + (1 - floor) |fast - slow| / sum |fast - slow|",
    paper="2106.14876, 1707.00183 (without their reweighting)",
    options=ProgressOptions,
    build=ProgressSampler,
)
