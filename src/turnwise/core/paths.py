"""Branched trajectories: one attempt with several continuations, each of which can be extracted as a trajectory of its
own.

The turns of a branched trajectory form a tree (`Turn.parent`), so what branches share is recorded, and sampled, once.
The first path, turns 0 to T - 1, is the attempt itself: the trajectory's stop reason and reward belong to it. Every
other path ends in a turn whose `Ending` has its own stop reason and reward. There are two kinds: leaves, which train,
and value estimates, which were sampled only to see how an attempt would end from some state. Turns that never train (of
estimates, and of paths that failed) come after all others.

    turns        0 1 2 3 | 1' 2' | 2'' 3''
    parents      - 0 1 2   0  1'   1   2''
    paths        0 1 2 3, 0 1' 2', 0 1 2'' 3''

A trajectory without endings is one path: all its turns, even if they belong to several conversations. Replies that
nobody received come last in it and never train.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from turnwise.core.types import Invalid, Scored, Trajectory, TrajectoryGroup

Kind = Literal["first", "leaf", "estimate"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Path:
    """A path from the root to a leaf."""

    kind: Kind
    turns: tuple[int, ...]
    """Indices in the branched trajectory."""
    num_shared: int
    """How many of them, from the root, also belong to an earlier path."""
    trajectory: Trajectory
    """The path as a trajectory of its own: linear, with its own stop reason and reward."""

    @property
    def trains(self) -> bool:
        """Whether credit may use it."""
        return self.kind != "estimate" and isinstance(self.trajectory.reward, Scored)


def split_paths(trajectory: Trajectory) -> list[Path]:
    """Return the first path, then the others in the order of their leaves. A trajectory without endings is one path:
    itself.

    Parents must precede their turns.
    """
    if not trajectory.endings:
        turns = tuple(range(len(trajectory.turns)))
        return [Path(kind="first", turns=turns, num_shared=0, trajectory=trajectory)]
    endings = {ending.turn: ending for ending in trajectory.endings}
    seen: set[int] = set()
    paths: list[Path] = []
    for turns in trajectory.branches():
        ending = endings.get(turns[-1])
        alone = _cut(trajectory, turns)
        if ending is not None:
            error = ending.reward.reason if isinstance(ending.reward, Invalid) else None
            alone = replace(alone, stop=ending.stop, reward=ending.reward, error=error)
        paths.append(
            Path(
                kind="first" if ending is None else ending.kind,
                turns=turns,
                num_shared=sum(index in seen for index in turns),
                trajectory=alone,
            )
        )
        seen.update(turns)
    return paths


def unfold_groups(groups: Iterable[TrajectoryGroup], *, estimates: bool = False) -> list[TrajectoryGroup]:
    """Return the groups with every trained path as a separate member, including Invalid attempts, and with `estimates`
    also value estimates.

    Paths keep the member number of their trajectory.
    """
    return [
        replace(
            group,
            trajectories=tuple(
                path.trajectory for t in group.trajectories for path in trained_paths(t, estimates=estimates)
            ),
        )
        for group in groups
    ]


def trained_paths(trajectory: Trajectory, *, estimates: bool = False) -> list[Path]:
    """Return the first path, even if its reward is Invalid, and the other paths that were scored; value estimates only
    on request. Replies that nobody received are left out."""
    return [
        path
        for path in split_paths(take_received(trajectory))
        if path.kind == "first" or path.trains or (estimates and isinstance(path.trajectory.reward, Scored))
    ]


def take_trained(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory without the turns that never train. Its branches keep their numbers."""
    if not trajectory.endings:
        return take_received(trajectory)
    count = 1 + max(index for path in trained_paths(trajectory) for index in path.turns)
    endings = tuple(ending for ending in trajectory.endings if ending.turn < count)
    return replace(trajectory, turns=trajectory.turns[:count], endings=endings)


def take_received(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory without the replies at its end that nobody received."""
    count = len(trajectory.turns)
    while count and not trajectory.turns[count - 1].is_received:
        count -= 1
    return trajectory if count == len(trajectory.turns) else replace(trajectory, turns=trajectory.turns[:count])


def first_path(trajectory: Trajectory) -> Trajectory:
    """Return the attempt itself, without its branches."""
    return split_paths(trajectory)[0].trajectory


def compute_state_values(trajectory: Trajectory) -> list[float | None]:
    """Return, per turn of the first path, the mean reward of the continuations from the state before it; None if there
    are none."""
    paths = split_paths(trajectory)
    returns: list[list[float]] = [[] for _ in paths[0].turns]
    for path in paths:
        reward = path.trajectory.reward
        if path.kind == "estimate" and isinstance(reward, Scored):
            returns[path.num_shared].append(reward.total)
    return [sum(values) / len(values) if values else None for values in returns]


def _cut(trajectory: Trajectory, turns: Sequence[int]) -> Trajectory:
    alone = tuple(replace(trajectory.turns[index], parent=at - 1 if at else None) for at, index in enumerate(turns))
    return replace(trajectory, turns=alone, endings=())
