"""What one part gives one trajectory, with the reason, and how a part becomes a row of rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.config.section import Section
from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Invalid, Scored, TrajectoryGroup
from turnwise.credit.reward_kind import RewardAccount, RewardKind

Measure = Callable[[TrajectoryGroup, int, Any], RewardAccount]
"""Measures the member of a group at an index under the row's options. Pure: nothing but the group decides."""


class NoOptions(Section):
    """A part without options."""


@dataclass(frozen=True, slots=True)
class MeasuredReward:
    """Implements `GroupReward` with a `Measure`."""

    measure: Measure
    options: Any

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Sequence[float | Invalid]:
        """Return the value of every member; 0 for one whose reward is Invalid already, which nobody reads."""
        return [
            self.measure(group, index, self.options).value if isinstance(member.reward, Scored) else 0.0
            for index, member in enumerate(group.trajectories)
        ]


def build_kind(
    name: str, summary: str, measure: Measure, *, formula: str, paper: str = "", options: type[Section] = NoOptions
) -> RewardKind:
    """Return the row of a part that is measured on stored trajectories alone, and so can be explained from them."""
    return RewardKind(
        name=name,
        summary=summary,
        formula=formula,
        paper=paper,
        options=options,
        build=lambda parts: MeasuredReward(measure, parts.options),
        explain=measure,
    )


def count_of(number: int, total: int, noun: str) -> str:
    """`2 of 5 calls`, `1 of 1 call`."""
    return f"{number} of {total} {noun}{'' if total == 1 else 's'}"


def list_numbers(numbers: Sequence[int], noun: str) -> str:
    """`call 3`, `calls 3 and 4`, `calls 1, 3 and 4`."""
    *first, last = map(str, numbers)
    return f"{noun}s {', '.join(first)} and {last}" if first else f"{noun} {last}"
