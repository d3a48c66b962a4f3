"""Adds the terms of a recipe's `[rewards]` to the trajectories of a complete group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from turnwise.core.errors import EnvironmentFault
from turnwise.core.judging import EpisodeJudges, Judge
from turnwise.core.returned import NoNumber, read_number, show
from turnwise.core.rewards import GroupReward
from turnwise.core.roles import learns, split_roles
from turnwise.core.types import Invalid, RewardTerm, Scored, Trajectory, TrajectoryGroup, TrajectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class TermAnnotator:
    """Implements `Annotator`: one reward of the recipe, as a term of every trajectory of a learning role."""

    name: str
    """The reward's name in the recipe."""
    reward: GroupReward
    weight: float
    cap: float | None
    judges: Mapping[str, Judge]

    async def annotate(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """Return the group with this reward's terms. Raises EnvironmentFault naming the trajectory for a value that is
        not a number, and for another number of values than trajectories."""
        changed: dict[TrajectoryId, Trajectory] = {}
        for part in split_roles(group):
            if part.trajectories and learns(part):
                seated = EpisodeJudges(self.judges)
                values = await self.reward.score(part, seated)
                members = self._add(part.trajectories, values)
                if seated.judgements:
                    members[0] = replace(members[0], judgements=(*members[0].judgements, *seated.judgements))
                changed.update({member.id: member for member in members})
        return replace(group, trajectories=tuple(changed.get(t.id, t) for t in group.trajectories))

    def _add(self, members: Sequence[Trajectory], values: object) -> list[Trajectory]:
        if not hasattr(values, "__len__") or isinstance(values, str | bytes | Mapping) or len(values) != len(members):
            raise EnvironmentFault(
                f"rewards.{self.name} returned {show(values)} for {len(members)} trajectories; return a number for each"
            )
        return [self._add_value(member, value) for member, value in zip(members, values, strict=True)]  # type: ignore[call-overload]

    def _add_value(self, member: Trajectory, value: object) -> Trajectory:
        if not isinstance(member.reward, Scored):
            return member
        if isinstance(value, Invalid):
            reason = f"rewards.{self.name}: {value.reason}"
            return replace(member, reward=replace(value, reason=reason), error=reason)
        try:
            number = read_number(value)
        except NoNumber as problem:
            raise EnvironmentFault(f"rewards.{self.name} of trajectory {member.id} is {problem}") from None
        term = RewardTerm(name=self.name, value=number, contribution=weigh(number, self.weight, self.cap))
        return replace(member, terms=(*member.terms, term))


def weigh(value: float, weight: float, cap: float | None) -> float:
    """Return what a value adds to the reward that trains: times its weight, within its cap (None: without one)."""
    contribution = weight * value
    return contribution if cap is None else min(max(contribution, -cap), cap)
