"""Paths of branched trajectories, on random trees with endings, and worked by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.paths import (
    compute_state_values,
    first_path,
    split_paths,
    take_trained,
    trained_paths,
    unfold_groups,
)
from turnwise.core.types import (
    Draw,
    Ending,
    Invalid,
    Reward,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
)
from turnwise.testing import make_trajectory, make_turn

FAILED = Invalid(reason="broken", retryable=True)


def make_attempt(parents: list[int | None], endings: Sequence[Ending] = (), reward: Reward | float = 1.0) -> Trajectory:
    """An attempt of turns whose one token is their index."""
    turns = (make_turn([], [index], parent=parent) for index, parent in enumerate(parents))
    return make_trajectory(*turns, reward=reward, endings=tuple(endings))


@st.composite
def branched(draw: st.DrawFn) -> Trajectory:
    """An attempt, leaves from its states and from those of earlier leaves, then paths that never train."""
    length = draw(st.integers(1, 4))
    parents: list[int | None] = [index - 1 if index else None for index in range(length)]
    # Branches leave from states before a reply, so never from the last turn of a path.
    attempt: list[int | None] = [None, *range(length - 1)]
    states = list(attempt)
    endings = []
    for trains in (*[True] * draw(st.integers(0, 4)), *[False] * draw(st.integers(0, 4))):
        kind: Literal["leaf", "estimate"] = "estimate" if not trains and draw(st.booleans()) else "leaf"
        # Estimates value the states of the attempt.
        state = draw(st.sampled_from(attempt if kind == "estimate" else states))
        depth, first = draw(st.integers(1, 3)), len(parents)
        parents += [state, *range(first, first + depth - 1)]
        reward: Reward = Scored(total=float(draw(st.integers(-2, 2))))
        if trains:
            states += list(range(first, first + depth - 1))
        if not trains and (kind == "leaf" or draw(st.booleans())):
            reward = FAILED
        stop = StopReason.DONE if isinstance(reward, Scored) else StopReason.ERROR
        endings.append(Ending(turn=len(parents) - 1, stop=stop, reward=reward, kind=kind))
    rewards: list[Reward] = [Scored(total=1.0), FAILED]
    return make_attempt(parents, endings, draw(st.sampled_from(rewards)))


def tokens(trajectory: Trajectory) -> list[int]:
    return [int(turn.completion.token_ids[0]) for turn in trajectory.turns]


@given(whole=branched())
def test_paths_are_the_attempt_and_one_path_per_ending(whole: Trajectory) -> None:
    paths = split_paths(whole)
    assert [path.turns[-1] for path in paths[1:]] == [ending.turn for ending in whole.endings]
    assert [path.turns for path in paths] == whole.branches()
    first = paths[0]
    assert (first.kind, first.trajectory.stop, first.trajectory.reward) == ("first", whole.stop, whole.reward)
    assert first.trajectory.turns[0].parent is None
    for path, ending in zip(paths[1:], whole.endings, strict=True):
        assert (path.kind, path.trajectory.stop, path.trajectory.reward) == (ending.kind, ending.stop, ending.reward)
        assert path.trains == (ending.kind == "leaf" and isinstance(ending.reward, Scored))
    seen: set[int] = set()
    for path in paths:
        # Alone it is linear, without endings, and has the tokens of the whole.
        assert [turn.parent for turn in path.trajectory.turns] == [None, *range(len(path.turns) - 1)]
        assert tokens(path.trajectory) == list(path.turns)
        assert (path.trajectory.endings, path.trajectory.id) == ((), whole.id)
        # What it shares with earlier paths is its beginning.
        assert [index in seen for index in path.turns] == [place < path.num_shared for place in range(len(path.turns))]
        seen.update(path.turns)
    assert seen == set(range(len(whole.turns)))  # no turn is without a path


@given(whole=branched())
def test_what_trains_is_the_beginning_and_keeps_its_numbers(whole: Trajectory) -> None:
    trained = take_trained(whole)
    kept = len(trained.turns)
    assert trained.turns == whole.turns[:kept]
    assert [path.turns for path in split_paths(trained)] == [path.turns for path in trained_paths(whole)]
    assert take_trained(trained).turns == trained.turns
    # Every turn that was left out is on paths that never train only.
    on_trained = {index for path in trained_paths(whole) for index in path.turns}
    assert on_trained == set(range(kept))
    assert all(path.kind == "first" or path.trains for path in trained_paths(whole))


@given(wholes=st.lists(branched(), max_size=3), estimates=st.booleans())
def test_unfolding_makes_every_path_that_trains_a_member(wholes: list[Trajectory], estimates: bool) -> None:
    task = Task(environment="e", prompt=(), payload={})
    members = tuple(replace(t, id=TrajectoryId(draw=0, member=m)) for m, t in enumerate(wholes))
    group = TrajectoryGroup(draw=Draw(index=0, task=task), trajectories=members, version=5)
    (unfolded,) = unfold_groups([group], estimates=estimates)
    expected = [
        (member.id, list(path.turns))
        for member in members
        for path in split_paths(member)
        if path.kind == "first" or (isinstance(path.trajectory.reward, Scored) and (path.kind == "leaf" or estimates))
    ]
    assert [(t.id, tokens(t)) for t in unfolded.trajectories] == expected
    assert (unfolded.draw, unfolded.version) == (group.draw, 5)


@given(whole=branched())
def test_state_values_are_means_over_the_estimates_of_a_state(whole: Trajectory) -> None:
    totals: dict[int | None, list[float]] = {}
    for path in split_paths(whole):
        if path.kind == "estimate" and isinstance(path.trajectory.reward, Scored):
            state = whole.turns[path.turns[path.num_shared]].parent
            totals.setdefault(state, []).append(path.trajectory.reward.total)
    attempt = split_paths(whole)[0].turns
    expected = [totals.get(state) for state in (None, *attempt[:-1])]
    assert compute_state_values(whole) == [
        None if values is None else pytest.approx(np.mean(values)) for values in expected
    ]


def test_a_trajectory_without_endings_is_one_path_also_as_several_conversations() -> None:
    two_roots = make_attempt([None, 0, None])
    (path,) = split_paths(two_roots)
    assert (path.kind, path.turns, path.num_shared) == ("first", (0, 1, 2), 0)
    assert path.trajectory is take_trained(two_roots) is first_path(two_roots) is two_roots


def test_paths_and_values_by_hand() -> None:
    # turns    0 1 2 | 3 4 | 5 | 6 | 7
    # parents  - 0 1   0 3   -   -   1
    endings = [
        Ending(turn=4, stop=StopReason.MAX_TURNS, reward=Scored(total=0.5), kind="leaf"),
        Ending(turn=5, stop=StopReason.DONE, reward=Scored(total=1.0), kind="estimate"),
        Ending(turn=6, stop=StopReason.DONE, reward=Scored(total=0.0), kind="estimate"),
        Ending(turn=7, stop=StopReason.ERROR, reward=FAILED, kind="estimate"),
    ]
    whole = make_attempt([None, 0, 1, 0, 3, None, None, 1], endings)
    paths = split_paths(whole)
    assert [path.turns for path in paths] == [(0, 1, 2), (0, 3, 4), (5,), (6,), (0, 1, 7)]
    assert [path.num_shared for path in paths] == [0, 1, 0, 0, 2]
    assert [path.trains for path in paths] == [True, True, False, False, False]
    assert [path.trajectory.error for path in paths] == [None, None, None, None, "broken"]
    # V(s0) = (1 + 0) / 2; no continuation from s1; the one from s2 failed.
    assert compute_state_values(whole) == [0.5, None, None]
    assert tokens(take_trained(whole)) == [0, 1, 2, 3, 4]
    assert take_trained(whole).endings == tuple(endings[:1])
    assert tokens(first_path(whole)) == [0, 1, 2]
