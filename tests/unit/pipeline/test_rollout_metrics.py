"""What the rollouts of a step say, by hand."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from turnwise.core.metrics import Mean, Sum, record
from turnwise.core.types import (
    Discarded,
    Draw,
    DropReason,
    Ending,
    Invalid,
    Reward,
    RewardPart,
    Scored,
    Signal,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    Turn,
    text_message,
)
from turnwise.pipeline.metrics import compute_diversity_metrics, compute_rollout_metrics
from turnwise.pipeline.steps import Taken
from turnwise.testing import make_trajectory, make_turn

TASK = Task(environment="none", prompt=(text_message("user", "question"),), payload={})


def turn(*tokens: int, parent: int | None = None, signals: Mapping[str, float] | None = None) -> Turn:
    """A reply of these tokens after one context token."""
    named = tuple(Signal(name=name, value=value) for name, value in (signals or {}).items())
    return make_turn([1], tokens, parent=parent, signals=named)


def scored(total: float, **parts: float) -> Scored:
    return Scored(total=total, parts=tuple(RewardPart(name=name, value=value) for name, value in parts.items()))


def attempt(member: int, *turns: Turn, reward: Reward | None = None, **fields: Any) -> Trajectory:
    return make_trajectory(*turns, member=member, reward=reward or Scored(total=1.0), **fields)


def group(*attempts: Trajectory, draw: int = 0, discarded: tuple[Discarded, ...] = ()) -> TrajectoryGroup:
    return TrajectoryGroup(draw=Draw(index=draw, task=TASK), trajectories=attempts, discarded=discarded)


def test_the_metrics_of_a_step_by_hand() -> None:
    trained = group(
        attempt(0, turn(5, 6), turn(7, parent=0), reward=scored(1.0, success=1.0, format=0.5)),
        attempt(1, turn(5), reward=scored(0.25, success=0.0, format=1.0), stop=StopReason.MAX_TURNS),
        discarded=(Discarded(trajectory=attempt(2, turn(8, 9, 9)), reason=DropReason.OVERDRAWN),),
    )
    dropped = group(attempt(0, turn(5), draw=1, reward=Invalid(reason="hung", retryable=True)), draw=1)
    taken = Taken(step=1, groups=(trained,), dropped=((dropped, DropReason.FILTERED_GROUP),))
    metrics = record(compute_rollout_metrics(taken, seconds=4.0))
    assert metrics["rollout/reward"] == 0.625  # (1 + 0.25) / 2: an Invalid reward is no zero
    assert metrics["rollout/success"] == 0.5
    assert (metrics["reward/success"], metrics["reward/format"]) == (0.5, 0.75)
    assert metrics["rollout/turns"] == pytest.approx(4 / 3)
    assert metrics["rollout/truncated"] == metrics["rollout/invalid"] == pytest.approx(1 / 3)
    # Sampled: 3 + 1 + 1 of members and 3 of the one discarded. Context: one token for each of 5 turns.
    assert (metrics["rollout/sampled_tokens"], metrics["rollout/discarded_tokens"]) == (8, 3)
    assert metrics["rollout/context_tokens"] == 5
    assert metrics["rollout/tokens_per_s"] == 2.0
    assert (metrics["rollout/groups"], metrics["rollout/kept_groups"], metrics["rollout/seconds"]) == (2, 1, 4.0)


def test_signals_of_environments_are_metrics_over_all_turns() -> None:
    first = attempt(0, turn(5, signals={"depth": 1.0, "hits": 2.0}), turn(6, parent=0, signals={"depth": 3.0}))
    taken = Taken(step=1, groups=(group(first, attempt(1, turn(5))),))
    metrics = compute_rollout_metrics(taken, seconds=1.0)
    assert metrics["signal/depth"] == Mean(4.0, 2.0)
    assert metrics["signal/hits"] == Mean(2.0, 1.0)


def test_branches_count_in_tokens_only() -> None:
    leaf = Ending(turn=1, stop=StopReason.MAX_TURNS, reward=Scored(total=0.0), kind="leaf")
    branched = attempt(0, turn(5), turn(6, 6), endings=(leaf,))
    metrics = compute_rollout_metrics(Taken(step=1, groups=(group(branched),)), seconds=1.0)
    assert record(metrics)["rollout/reward"] == 1.0
    assert record(metrics)["rollout/turns"] == 1.0
    assert metrics["rollout/sampled_tokens"] == Sum(3)


def test_a_step_without_a_group_has_counts_and_no_means() -> None:
    metrics = record(compute_rollout_metrics(Taken(step=1, groups=()), seconds=1.0))
    assert metrics["rollout/groups"] == metrics["rollout/sampled_tokens"] == 0
    assert math.isnan(metrics["rollout/reward"])
    assert "rollout/identical_groups" not in metrics


def test_identical_groups_are_those_whose_members_sampled_the_same_tokens() -> None:
    same = group(attempt(0, turn(5, 6)), attempt(1, turn(5, 6)))
    different = group(attempt(0, turn(5, 6)), attempt(1, turn(5, 7)))
    assert compute_diversity_metrics([same, different])["rollout/identical_groups"].value == 0.5
    assert compute_diversity_metrics([group(attempt(0, turn(5)))]) == {}, "a group of one leaves nothing to compare"
    # The same tokens cut into other turns are other replies.
    split = group(attempt(0, turn(5, 6)), attempt(1, turn(5), turn(6, parent=0)))
    assert compute_diversity_metrics([split])["rollout/identical_groups"].value == 0.0
