"""Branched trajectories: one attempt with several futures, and how to look at each of them as a trajectory of its own.

The turns of a branched trajectory form a tree (`Turn.parent`), so what branches share is recorded, and sampled, once.
The first path, turns 0 to T - 1, is the attempt itself: the trajectory's stop reason and reward are its. Every other
path ends in a turn that carries its own, as signals (`sign_leaf`). There are two kinds of them: leaves, which train,
and value estimates, which were sampled only to see how an attempt would end from some state. Turns that never train (of
estimates, and of paths that failed) come after all others.

    turns        0 1 2 3 | 1' 2' | 2'' 3''
    parents      - 0 1 2   0  1'   1   2''
    paths        0 1 2 3, 0 1' 2', 0 1 2'' 3''
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from turnwise.core.types import (
    Invalid,
    Reward,
    RewardPart,
    Scored,
    Signal,
    StopReason,
    Trajectory,
    TrajectoryGroup,
    Turn,
)

BRANCH_STOP = "branch/stop"
"""Why the path that ends in this turn ended: the position of its `StopReason` in the list of all."""
BRANCH_REWARD = "branch/reward"
"""Its total reward; absent where the path failed."""
BRANCH_PART = "branch/part/"
"""Start of the names of its reward's parts."""
BRANCH_ESTIMATE = "branch/estimate"
"""1 where the path only estimates a value."""
STOPS = tuple(StopReason)

Kind = Literal["first", "leaf", "estimate"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Path:
    """One way from the root to a leaf."""

    kind: Kind
    turns: tuple[int, ...]
    """Indices in the branched trajectory."""
    num_shared: int
    """How many of them, from the root, an earlier path has too."""
    trajectory: Trajectory
    """The path alone: linear, with its own stop reason and reward."""

    @property
    def trains(self) -> bool:
        """Whether credit may count it."""
        return self.kind != "estimate" and isinstance(self.trajectory.reward, Scored)


def sign_leaf(turn: Turn, *, stop: StopReason, reward: Reward, estimate: bool) -> Turn:
    """The last turn of a path, with the path's stop reason and reward on it."""
    signals = [Signal(name=BRANCH_STOP, value=float(STOPS.index(stop)))]
    if isinstance(reward, Scored):
        signals.append(Signal(name=BRANCH_REWARD, value=reward.total))
        signals += [Signal(name=BRANCH_PART + part.name, value=part.value) for part in reward.parts]
    if estimate:
        signals.append(Signal(name=BRANCH_ESTIMATE, value=1.0))
    return replace(turn, signals=(*turn.signals, *signals))


def is_branched(trajectory: Trajectory) -> bool:
    """Whether any turn ends a path besides the first."""
    return any(signal.name == BRANCH_STOP for turn in trajectory.turns for signal in turn.signals)


def split_paths(trajectory: Trajectory) -> list[Path]:
    """The first path, then the others in the order of their leaves. A trajectory without branches is one path: itself.

    Parents must precede their turns. What a path's own signals said stays on its last turn.
    """
    if not is_branched(trajectory):
        return [Path(kind="first", turns=tuple(range(len(trajectory.turns))), num_shared=0, trajectory=trajectory)]
    seen: set[int] = set()
    paths: list[Path] = []
    for turns in trajectory.branches():
        alone = _cut(trajectory, turns)
        signed = {
            signal.name: signal.value
            for signal in trajectory.turns[turns[-1]].signals
            if signal.name.startswith("branch/")
        }
        kind: Kind = "estimate" if BRANCH_ESTIMATE in signed else "leaf" if BRANCH_STOP in signed else "first"
        if kind != "first":
            stop = STOPS[int(signed[BRANCH_STOP])]
            reward = _read_reward(trajectory.turns[turns[-1]].signals, stop)
            alone = replace(
                alone, stop=stop, reward=reward, error=reward.reason if isinstance(reward, Invalid) else None
            )
        paths.append(Path(kind=kind, turns=turns, num_shared=sum(index in seen for index in turns), trajectory=alone))
        seen.update(turns)
    return paths


def unfold_groups(groups: Iterable[TrajectoryGroup], *, estimates: bool = False) -> list[TrajectoryGroup]:
    """The groups with every path that trains as a member of its own, Invalid attempts included; with `estimates` those
    too.

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
    """The first path, also when its reward is Invalid, and the others that were scored; value estimates only where
    asked for."""
    return [
        path
        for path in split_paths(trajectory)
        if path.kind == "first" or path.trains or (estimates and isinstance(path.trajectory.reward, Scored))
    ]


def take_trained(trajectory: Trajectory) -> Trajectory:
    """The trajectory without the turns that never train. Its branches have the numbers they have in the whole."""
    if not is_branched(trajectory):
        return trajectory
    count = 1 + max(index for path in trained_paths(trajectory) for index in path.turns)
    return replace(trajectory, turns=trajectory.turns[:count])


def first_path(trajectory: Trajectory) -> Trajectory:
    """The attempt itself, without its branches."""
    return split_paths(trajectory)[0].trajectory


def compute_state_values(trajectory: Trajectory) -> list[float | None]:
    """Per turn of the first path the mean reward of the continuations from the state before it; None where there are
    none."""
    paths = split_paths(trajectory)
    returns: list[list[float]] = [[] for _ in paths[0].turns]
    for path in paths:
        reward = path.trajectory.reward
        if path.kind == "estimate" and isinstance(reward, Scored):
            returns[path.num_shared].append(reward.total)
    return [sum(values) / len(values) if values else None for values in returns]


def _cut(trajectory: Trajectory, turns: Sequence[int]) -> Trajectory:
    alone = tuple(replace(trajectory.turns[index], parent=at - 1 if at else None) for at, index in enumerate(turns))
    return replace(trajectory, turns=alone)


def _read_reward(signals: Sequence[Signal], stop: StopReason) -> Reward:
    totals = [signal.value for signal in signals if signal.name == BRANCH_REWARD]
    if not totals:
        return Invalid(reason=f"the branch could not be judged ({stop.value})", retryable=False)
    parts = [
        RewardPart(name=signal.name.removeprefix(BRANCH_PART), value=signal.value)
        for signal in signals
        if signal.name.startswith(BRANCH_PART)
    ]
    return Scored(total=totals[0], parts=tuple(parts))
