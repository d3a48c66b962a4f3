"""Lists scored trajectories and turns that do not train, with their reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from turnwise.core.batch import Drop
from turnwise.core.paths import split_paths, take_received
from turnwise.core.types import DropReason, Scored, Trajectory, TrajectoryGroup, TrajectoryId


def list_truncated(groups: Sequence[TrajectoryGroup], *, train_truncated: bool) -> dict[TrajectoryId, DropReason]:
    """Return the trajectories that a limit ended, with the reason why they do not train; none if `train_truncated` is
    set."""
    if train_truncated:
        return {}
    return {t.id: DropReason.TRUNCATED for group in groups for t in group.trajectories if t.stop.is_truncated}


def list_extra_members(groups: Sequence[TrajectoryGroup], *, train_members: int) -> dict[TrajectoryId, DropReason]:
    """Return the members after the first `train_members`, with the reason why they do not train; none for 0."""
    if not train_members:
        return {}
    members = [t.id for group in groups for t in group.trajectories]
    return {name: DropReason.EXTRA_MEMBER for name in members if name.member >= train_members}


def list_drops(
    groups: Sequence[TrajectoryGroup],
    chosen: Collection[TrajectoryId],
    reason: DropReason,
    *,
    other_reasons: Mapping[TrajectoryId, DropReason] = MappingProxyType({}),
) -> list[Drop]:
    """Return a drop for every scored trajectory of `groups` that the learner does not train on: all but the `chosen`.

    The reason is `reason`, or the trajectory's entry in `other_reasons`. Turns that never train are always dropped, for
    their own reason. A chosen trajectory without a sample gets no reason, so the ledger refuses it.
    """
    drops = []
    for group in groups:
        for trajectory in group.trajectories:
            if not isinstance(trajectory.reward, Scored):
                continue
            idle = list_idle_turns(trajectory)
            drops += [Drop(trajectory=trajectory.id, reason=why, turns=turns) for why, turns in idle.items() if turns]
            if trajectory.id not in chosen:
                others = set(range(len(trajectory.turns))).difference(*idle.values())
                turns = tuple(sorted(others)) if any(idle.values()) else None
                why = other_reasons.get(trajectory.id, reason)
                if turns != ():
                    drops.append(Drop(trajectory=trajectory.id, reason=why, turns=turns))
    return drops


def list_idle_turns(trajectory: Trajectory) -> dict[DropReason, tuple[int, ...]]:
    """Return the turns of a scored trajectory that serve only to estimate a value, those of failed branches, and those
    that nobody received."""
    trains: set[int] = set()
    estimates: set[int] = set()
    for path in split_paths(take_received(trajectory)):
        if path.kind == "first" or path.trains:
            trains.update(path.turns)
        elif isinstance(path.trajectory.reward, Scored):
            estimates.update(path.turns)
    idle = set(range(len(trajectory.turns))) - trains
    lost = {index for index in idle if not trajectory.turns[index].is_received}
    return {
        DropReason.VALUE_ESTIMATE: tuple(sorted(idle & estimates)),
        DropReason.INVALID: tuple(sorted(idle - estimates - lost)),
        DropReason.UNDELIVERED: tuple(sorted(lost)),
    }
