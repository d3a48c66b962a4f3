"""Check that a stored group is complete, and is the one that the journal opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.algorithms.opponents import list_snapshots
from turnwise.audit.accounts import NOT_MEMBERS
from turnwise.audit.breaches import Breach
from turnwise.audit.materials import AuditMaterials
from turnwise.config.roles import find_binding
from turnwise.core.roles import split_roles
from turnwise.core.types import Trajectory, TrajectoryGroup
from turnwise.store.journal import DrawRecord
from turnwise.store.trajectories import list_placed


def check_group(
    group: TrajectoryGroup, record: DrawRecord, rows: Sequence[Mapping[str, Any]], materials: AuditMaterials
) -> list[Breach]:
    """Check that the group has the members the recipe asks for, and is the one that the journal opened.

    All members belong to one task, one draw and one role, under different names. Draw, weight version and first attempt
    number are the journal's. `rows` are its lines in the store. Fewer members than the recipe's are allowed in a group
    that was dropped, and where the recipe trains groups without their late members.
    """
    whole = [
        Breach(check="groups", step=record.step, draw=group.draw.index, text=text)
        for text in _group_problems(group, record, materials)
    ]
    alone = []
    names = [trajectory.id for trajectory, _, _ in list_placed(group)]
    for (trajectory, _, _), row in zip(list_placed(group), rows, strict=True):
        texts = []
        if names.count(trajectory.id) > 1:
            texts.append("two trajectories of its group have this name")
        if trajectory.id.draw != group.draw.index or group.role not in ("", trajectory.id.role):
            texts.append(f"it is stored in the group of draw {group.draw.index} and role {group.role!r}")
        binding = find_binding(materials.settings.roles, trajectory.id.role)
        if binding.kind == "past":
            texts += _past_problems(trajectory, group, materials)
        if trajectory.learns != binding.learns:
            bound = materials.settings.roles.get(trajectory.id.role, "learns")
            texts.append(f"it is stored as learns={trajectory.learns}, the recipe binds its role to {bound!r}")
        if trajectory.task_id != group.task.id or row["task"] != rows[0]["task"]:
            texts.append(f"its task {trajectory.task_id} is not the one of its group ({group.task.id})")
        if trajectory.id.attempt < group.draw.attempt:
            texts.append(f"it is attempt {trajectory.id.attempt}, its group began with {group.draw.attempt}")
        alone += [Breach(check="groups", step=record.step, trajectory=trajectory.id, text=text) for text in texts]
    return whole + alone


def _past_problems(trajectory: Trajectory, group: TrajectoryGroup, materials: AuditMaterials) -> Iterator[str]:
    """Check that all members of a draw face one snapshot, which existed when the draw was opened."""
    spoken = [t for t, _, _ in list_placed(group) if t.id.role == trajectory.id.role]
    together = {turn.completion.version_first for t in spoken for turn in t.turns}
    if len(together) > 1:
        yield f"several snapshots speak for its role in one draw: {sorted(together)}"
    seen = {turn.completion.version_last for turn in trajectory.turns}
    snapshots = list_snapshots(group.version, materials.settings.checkpoint_every)
    if seen - set(snapshots):
        yield f"snapshot {min(seen - set(snapshots))} speaks, and the group was opened when there were {snapshots}"


def _group_problems(group: TrajectoryGroup, record: DrawRecord, materials: AuditMaterials) -> Iterator[str]:
    stored = (group.draw.index, group.draw.attempt, group.version)
    if stored != (record.draw, record.attempt, record.version):
        yield (
            f"the store has draw, attempt and version {stored}, the journal "
            f"{(record.draw, record.attempt, record.version)}"
        )
    for part in split_roles(group):
        yield from _member_problems(part, record, materials)
    for each in group.discarded:
        if each.reason.value not in NOT_MEMBERS:
            yield f"trajectory {each.trajectory.id} is discarded as {each.reason.value!r}, no reason for a single one"


def _member_problems(group: TrajectoryGroup, record: DrawRecord, materials: AuditMaterials) -> Iterator[str]:
    size = materials.settings.group_size
    members = [trajectory.id.member for trajectory in group.trajectories]
    if materials.num_started == size and len(members) == size:
        allowed = members == list(range(size))
    else:
        may_be_short = materials.cuts_late or record.fate == "dropped"
        complete = len(members) == size or (may_be_short and len(members) < size)
        allowed = complete and members == sorted(set(members)) and set(members) <= set(range(materials.num_started))
    if not allowed:
        yield (f"it has members {members}, expected {size} of 0 to {materials.num_started - 1}, once each and in order")


def check_tasks(groups: Mapping[int, str], records: Mapping[int, DrawRecord]) -> list[Breach]:
    """Check that draws with one task index have one task. `groups` holds the task id of every stored group, by draw."""
    tasks: dict[int, tuple[int, str]] = {}
    breaches = []
    for draw, task_id in groups.items():
        index = records[draw].task_index
        first, expected = tasks.setdefault(index, (draw, task_id))
        if task_id != expected:
            text = f"its task {task_id} is not that of draw {first}, and both have task index {index}"
            breaches.append(Breach(check="groups", step=records[draw].step, draw=draw, text=text))
    return breaches
