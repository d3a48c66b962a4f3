"""Splits the groups of a draw in which several roles spoke: one group per role, as credit and the ledger expect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from turnwise.core.types import Trajectory, TrajectoryGroup


def split_roles(group: TrajectoryGroup) -> list[TrajectoryGroup]:
    """Return one group per role, by name; a group with one role is returned unchanged. Every trajectory is in exactly
    one of them."""
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
    """Return the groups of every role of every draw, in order."""
    return [part for group in groups for part in split_roles(group)]


def learns(group: TrajectoryGroup) -> bool:
    """Whether the group's role is played by a learning policy."""
    return all(t.learns for t in (*group.trajectories, *(each.trajectory for each in group.discarded)))


def count_members(group: TrajectoryGroup) -> int:
    """Count the episodes in the group, whatever the number of roles."""
    return len({t.id.member for t in group.trajectories})


def take_measured(group: TrajectoryGroup) -> tuple[Trajectory, ...]:
    """Return the trajectories that measure a policy: those of the learning roles, or all of them if none learns (an
    evaluation of a served or a frozen model)."""
    return tuple(t for t in group.trajectories if t.learns) or group.trajectories
