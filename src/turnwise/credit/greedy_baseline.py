"""A greedy attempt at a group's task, for credit methods that compare with it (ReMax)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from turnwise.core.types import Draw, Trajectory, TrajectoryGroup
from turnwise.credit.annotator_kind import AnnotatorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyBaseline:
    """Implements `Annotator`: fills `TrajectoryGroup.baseline`."""

    run_greedy: Callable[[Draw], Awaitable[Trajectory]]
    """Runs one attempt at the draw's task at temperature 0."""

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """Return the group with its baseline, whose reward may be Invalid. Raises what `run_greedy` raises."""
        return replace(group, baseline=await self.run_greedy(group.draw))


GREEDY_BASELINE = AnnotatorKind(
    name="greedy_baseline",
    fills="greedy_reward",
    needs_baseline=True,
    build=lambda parts: GreedyBaseline(run_greedy=parts.run_greedy),
)
