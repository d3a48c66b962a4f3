"""Intervals and summaries."""

from dataclasses import replace

import pytest

from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    Invalid,
    Reward,
    RewardPart,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolRecord,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.summary import summarise
from turnwise.testing import make_group, make_task, make_trajectory


def test_wilson_by_hand() -> None:
    # 8 of 10, z = 1.96: centre (0.8 + 0.19208)/(1.38416) = 0.716736..., half 1.96/1.38416*sqrt(0.016 + 0.009604) =
    # 0.226577...
    low, high = compute_wilson_interval(8, 10, z=1.96)
    assert low == pytest.approx(0.490159, abs=1e-5)
    assert high == pytest.approx(0.943312, abs=1e-5)


def test_wilson_at_the_edges() -> None:
    assert compute_wilson_interval(0, 0) == (0.0, 1.0)
    low, high = compute_wilson_interval(0, 20)
    assert low == 0.0
    assert 0.1 < high < 0.2
    low, high = compute_wilson_interval(20, 20)
    assert high == 1.0
    assert 0.8 < low < 0.9
    with pytest.raises(ValueError, match="not a share"):
        compute_wilson_interval(3, 2)


def group(kind: str | None, reward: Reward, environment: str = "e") -> TrajectoryGroup:
    payload = {} if kind is None else {"kind": kind}
    return make_group(make_trajectory(reward=reward), task=make_task(environment=environment, **payload))


def test_invalid_trajectories_are_counted_apart_and_never_as_failures() -> None:
    groups = [
        group("1hop", Scored(total=1.0, parts=(RewardPart(name="success", value=1.0),))),
        group("2hop", Scored(total=0.9, parts=(RewardPart(name="success", value=0.0),))),
        group("2hop", Invalid(reason="crash", retryable=False)),
    ]
    summary = summarise(groups, name="n", label="l", step=0)
    assert [(r.kind, r.n, r.success, r.invalid) for r in summary.rows] == [
        ("1hop", 1, 1.0, 0),
        ("2hop", 1, 0.0, 1),
        ("all", 2, 0.5, 1),
    ]
    with pytest.raises(KeyError, match="3hop"):
        summary.row("3hop")


def test_an_episode_counts_once_however_many_roles_learn() -> None:
    def said(member: int, role: str, success: float) -> Trajectory:
        reward = Scored(total=success, parts=(RewardPart(name="success", value=success),))
        trajectory = make_trajectory(reward=reward)
        return replace(trajectory, id=replace(trajectory.id, member=member, role=role))

    # A team that succeeds, a team that fails, and a game that player0 wins and player1 loses: 1, 0 and 1/2 of 3.
    both = [
        said(0, "a", 1.0),
        said(0, "b", 1.0),
        said(1, "a", 0.0),
        said(1, "b", 0.0),
        said(2, "a", 1.0),
        said(2, "b", 0.0),
    ]
    tokens = both[0].num_sampled_tokens
    row = summarise([make_group(*both, task=make_task())], name="n", label="l", step=0).row("all")
    assert (row.n, row.success) == (3, 0.5)
    assert (row.low, row.high) == compute_wilson_interval(1.5, 3)
    assert row.response_tokens == 2 * tokens


def test_several_environments_have_a_row_each_and_their_kinds_stay_apart() -> None:
    right, wrong = Scored(total=1.0), Scored(total=0.0)
    groups = [group("1hop", right, "search"), group("1hop", wrong, "other"), group(None, right, "other")]
    rows = summarise(groups, name="n", label="l", step=0).rows
    assert [(row.kind, row.n, row.success) for row in rows] == [
        ("other", 2, 0.5),
        ("other/1hop", 1, 0.0),
        ("search", 1, 1.0),
        ("search/1hop", 1, 1.0),
        ("all", 3, 2 / 3),
    ]


def test_tasks_without_a_kind_give_one_row() -> None:
    assert [r.kind for r in summarise([group(None, Scored(total=1.0))], name="n", label="l", step=0).rows] == ["all"]


def attempt(*turns: tuple[int, str | None], reward: Reward) -> TrajectoryGroup:
    """One trajectory of turns `(sampled tokens, error of the turn's call)`."""
    task = Task(environment="e", prompt=(text_message("user", "q"),), payload={})
    made = [
        Turn(
            parent=index - 1 if index else None,
            context_ids=to_ids([1, 2, 3]),
            completion=Completion(
                token_ids=to_ids([5] * count),
                logprobs=to_floats([0.0] * count),
                finish_reason=FinishReason.STOP,
                version_first=0,
                version_last=0,
            ),
            message=text_message("assistant", "r"),
            tool_records=(
                ToolRecord(call=ToolCall(id="c", name="t", arguments="{}"), observation="o", error=error, seconds=0.0),
            ),
        )
        for index, (count, error) in enumerate(turns)
    ]
    trajectory = Trajectory(
        id=TrajectoryId(draw=0, member=0), task_id=task.id, turns=tuple(made), stop=StopReason.DONE, reward=reward
    )
    return TrajectoryGroup(draw=Draw(index=0, task=task), trajectories=(trajectory,))


def test_recovery_counts_only_trajectories_with_a_failed_call() -> None:
    right, wrong = (
        Scored(total=total, parts=(RewardPart(name="success", value=value),))
        for total, value in ((1.0, 1.0), (-1.0, 0.0))
    )
    groups = [
        attempt((4, None), (2, None), reward=right),  # never failed
        attempt((4, "NameError"), (5, None), (2, None), reward=right),  # recovered
        attempt((4, "NameError"), (2, None), reward=wrong),
        attempt((4, "NameError"), (5, "ValueError"), (2, None), reward=wrong),  # two failures are one trajectory
        attempt((9, "NameError"), reward=Invalid(reason="crash", retryable=False)),
    ]
    row = summarise(groups, name="n", label="l", step=0).row("all")
    assert (row.n, row.errored) == (4, 3)
    assert row.recovered == pytest.approx(1 / 3)
    assert row.response_tokens == pytest.approx((6 + 11 + 6 + 11) / 4)  # observations do not count
    assert summarise(groups[:1], name="n", label="l", step=0).row("all").recovered is None


def test_reward_and_its_parts_are_means_over_what_was_scored() -> None:
    groups = [
        group(None, Scored(total=1.0, parts=(RewardPart(name="format", value=1.0),))),
        group(None, Scored(total=0.25, parts=(RewardPart(name="format", value=0.5), RewardPart(name="f1", value=0.5)))),
        group(None, Invalid(reason="crash", retryable=False)),
    ]
    row = summarise(groups, name="n", label="l", step=0).row("all")
    assert (row.reward, row.parts) == (0.625, {"f1": 0.5, "format": 0.75})
    assert summarise(groups[2:], name="n", label="l", step=0).row("all").reward is None
