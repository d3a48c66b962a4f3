"""Why scored trajectories and turns do not train."""

from typing import Any

from turnwise.batching.samples import take_scored
from turnwise.core.batch import Drop
from turnwise.core.types import (
    DropReason,
    Ending,
    Invalid,
    Reward,
    Scored,
    StopReason,
    Trajectory,
    TrajectoryId,
    Turn,
)
from turnwise.learning.drops import list_drops, list_idle_turns, list_truncated
from turnwise.testing import make_group, make_trajectory, make_turn


def attempt(member: int, *turns: Turn, **fields: Any) -> Trajectory:
    return make_trajectory(*(turns or (make_turn([1], [5, 6]),)), member=member, draw=4, **fields)


def test_limits_are_the_reason_where_the_recipe_leaves_out_what_they_ended() -> None:
    groups = [make_group(attempt(0), attempt(1, stop=StopReason.MAX_TURNS), attempt(2))]
    assert list_truncated(groups, train_truncated=True) == {}
    truncated = list_truncated(groups, train_truncated=False)
    drops = list_drops(groups, {TrajectoryId(draw=4, member=0)}, DropReason.NO_CREDIT, other_reasons=truncated)
    assert drops == [
        Drop(trajectory=TrajectoryId(draw=4, member=1), reason=DropReason.TRUNCATED),
        Drop(trajectory=TrajectoryId(draw=4, member=2), reason=DropReason.NO_CREDIT),
    ]


def test_turns_that_never_train_have_a_reason_of_their_own() -> None:
    # Turn 0 leads to 1 (the attempt), 2 (a leaf), 3 (an estimate) and 4 (a leaf that failed).
    def end(at: int, kind: str, reward: Reward) -> Ending:
        return Ending(turn=at, stop=StopReason.DONE, reward=reward, kind=kind)  # type: ignore[arg-type]

    scored, failed = Scored(total=0.0), Invalid(reason="hung", retryable=False)
    turns = (make_turn([1], [1]), *(make_turn([1], [index], parent=0) for index in (2, 3, 4, 5)))
    tree = attempt(0, *turns, endings=(end(2, "leaf", scored), end(3, "estimate", scored), end(4, "leaf", failed)))
    idle = [(DropReason.VALUE_ESTIMATE, (3,)), (DropReason.INVALID, (4,))]
    assert list_idle_turns(tree) == {**dict(idle), DropReason.UNDELIVERED: ()}
    assert [(d.reason, d.turns) for d in list_drops([make_group(tree)], {tree.id}, DropReason.NO_CREDIT)] == idle
    left_out = list_drops([make_group(tree)], set(), DropReason.NO_CREDIT)
    assert [(d.reason, d.turns) for d in left_out] == [*idle, (DropReason.NO_CREDIT, (0, 1, 2))]


def test_replies_that_nobody_received_are_dropped_for_that_reason() -> None:
    turns = (make_turn([1], [1]), make_turn([1], [2, 3], parent=0, is_received=False))
    trained, other = attempt(0, *turns), attempt(1, *turns)
    nobody = attempt(2, make_turn([1], [4], is_received=False))
    drops = list_drops([make_group(trained, other, nobody)], {trained.id}, DropReason.NO_CREDIT)
    assert [(drop.trajectory.member, drop.reason, drop.turns) for drop in drops] == [
        (0, DropReason.UNDELIVERED, (1,)),
        (1, DropReason.UNDELIVERED, (1,)),
        (1, DropReason.NO_CREDIT, (0,)),
        (2, DropReason.UNDELIVERED, (0,)),
    ]
    assert [len(each.turns) for each in take_scored([make_group(trained, nobody)]).values()] == [1, 0]
