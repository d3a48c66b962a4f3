"""The groups of a draw in which several roles spoke: one per role, which is what credit and the ledger take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from turnwise.core.types import Trajectory, TrajectoryGroup


def split_roles(group: TrajectoryGroup) -> list[TrajectoryGroup]:
    """One group per role, by name; a group of one role is itself. Every trajectory is in exactly one of them."""
    if group.role:
        return [group]
    trajectories = (*group.trajectories, *(each.trajectory for each in group.discarded))
    return [
        replace(
            group,
            role=role,
            trajectories=tuple(t for t in group.trajectories if t.id.role == role),
            discarded=tuple(each for each in group.discarded if each.trajectory.id.role == role),
        )
        for role in sorted({t.id.role for t in trajectories})
    ]


def split_all(groups: Iterable[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """The groups of every role of every draw, in order."""
    return [part for group in groups for part in split_roles(group)]


def learns(group: TrajectoryGroup) -> bool:
    """Whether the group's role is played by the policy that learns."""
    return all(t.learns for t in (*group.trajectories, *(each.trajectory for each in group.discarded)))


def count_members(group: TrajectoryGroup) -> int:
    """Episodes in the group, whatever the number of their roles."""
    return len({t.id.member for t in group.trajectories})


def take_measured(group: TrajectoryGroup) -> tuple[Trajectory, ...]:
    """The trajectories that say how good a policy is: those of the roles that learn, or all of them where none does (an
    evaluation of a served or a frozen model)."""
    return tuple(t for t in group.trajectories if t.learns) or group.trajectories
