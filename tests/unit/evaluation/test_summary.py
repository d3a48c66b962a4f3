"""Summaries of evaluations."""

import itertools
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
from turnwise.evaluation.intervals import compute_pass_at, compute_share_interval, compute_wilson_interval
from turnwise.evaluation.summary import summarise
from turnwise.testing import make_group, make_task, make_trajectory


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
    assert (row.n, row.episodes, row.success) == (1, 3, 0.5)
    assert (row.low, row.high) == compute_wilson_interval(0.5, 1)  # three attempts at one task
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
    assert (row.episodes, row.errored) == (4, 3)
    assert row.recovered == pytest.approx(1 / 3)
    assert row.response_tokens == pytest.approx((6 + 11 + 6 + 11) / 4)  # observations do not count
    assert summarise(groups[:1], name="n", label="l", step=0).row("all").recovered is None


def test_pass_at_k_by_hand() -> None:
    # Of 4 samples 1 passed; of the 6 pairs 3 hold it, of the 4 triples 3.
    assert [compute_pass_at(k, num_samples=4, num_passed=1) for k in (1, 2, 3, 4)] == [0.25, 0.5, 0.75, 1.0]
    assert compute_pass_at(2, num_samples=4, num_passed=0) == 0.0
    for k, num_samples, num_passed in ((0, 4, 1), (5, 4, 1), (2, 4, 5)):
        with pytest.raises(ValueError, match="not defined"):
            compute_pass_at(k, num_samples=num_samples, num_passed=num_passed)


def test_pass_at_k_is_the_share_of_subsets_that_hold_a_success() -> None:
    for num_samples in range(1, 7):
        for num_passed in range(num_samples + 1):
            for k in range(1, num_samples + 1):
                subsets = list(itertools.combinations(range(num_samples), k))
                held = sum(any(sample < num_passed for sample in subset) for subset in subsets)
                found = compute_pass_at(k, num_samples=num_samples, num_passed=num_passed)
                assert found == pytest.approx(held / len(subsets))


def sampled(task: Task, *rewards: Reward) -> TrajectoryGroup:
    members = [make_trajectory(member=index, reward=reward, task_id=task.id) for index, reward in enumerate(rewards)]
    return make_group(*members, task=task)


RIGHT, WRONG, BROKEN = Scored(total=1.0), Scored(total=0.0), Invalid(reason="crash", retryable=False)


def test_several_samples_give_mean_and_pass_at_k() -> None:
    tasks = [make_task(str(index)) for index in range(3)]
    groups = [
        sampled(tasks[0], RIGHT, WRONG, WRONG, WRONG),
        sampled(tasks[1], WRONG, WRONG, WRONG, WRONG),
        sampled(tasks[2], RIGHT, RIGHT, BROKEN, RIGHT),
    ]
    row = summarise(groups, name="n", label="l", step=0).row("all")
    assert (row.n, row.episodes, row.invalid) == (3, 11, 1)
    assert row.success == pytest.approx(4 / 11)
    # pass@1: (1/4 + 0 + 1)/3; pass@2: (1/2 + 0 + 1)/3; pass@4: the third task has three samples only, (1 + 0)/2.
    assert [(each.k, each.n, each.share) for each in row.pass_at] == [
        (1, 3, pytest.approx(1.25 / 3)),
        (2, 3, 0.5),
        (4, 2, 0.5),
    ]
    assert (row.pass_at[1].low, row.pass_at[1].high) == compute_share_interval(1.5, 3)


def test_copies_of_a_task_are_one_task() -> None:
    task = make_task("a copy")
    groups = [sampled(task, RIGHT) for _ in range(30)] + [sampled(make_task("another"), WRONG)]
    row = summarise(groups, name="n", label="l", step=0).row("all")
    assert (row.n, row.episodes, row.pass_at) == (2, 31, ())
    assert row.high - row.low > 0.7  # two tasks, not 31


def test_where_no_role_learns_all_of_them_are_measured() -> None:
    served = [replace(make_trajectory(reward=reward), learns=False) for reward in (RIGHT, WRONG)]
    groups = [make_group(each, task=make_task(str(index))) for index, each in enumerate(served)]
    row = summarise(groups, name="n", label="l", step=0).row("all")
    assert (row.n, row.success) == (2, 0.5)


def test_reward_and_its_parts_are_means_over_what_was_scored() -> None:
    groups = [
        group(None, Scored(total=1.0, parts=(RewardPart(name="format", value=1.0),))),
        group(None, Scored(total=0.25, parts=(RewardPart(name="format", value=0.5), RewardPart(name="f1", value=0.5)))),
        group(None, Invalid(reason="crash", retryable=False)),
    ]
    row = summarise(groups, name="n", label="l", step=0).row("all")
    assert (row.reward, row.parts) == (0.625, {"f1": 0.5, "format": 0.75})
    assert summarise(groups[2:], name="n", label="l", step=0).row("all").reward is None


def test_tasks_of_one_world_are_one_cluster() -> None:
    # Ten tasks of two worlds, all of one solved and none of the other: two results, not ten.
    tasks = [make_task(str(index), world=index // 5) for index in range(10)]
    row = summarise(
        [sampled(task, RIGHT if task.payload["world"] else WRONG) for task in tasks], name="n", label="l", step=0
    ).row("all")
    assert (row.n, row.clusters, row.success) == (10, 2, 0.5)
    assert row.high - row.low > 0.95
    named = [make_task(str(index), cluster="a" if index < 5 else "b", world=index) for index in range(10)]
    assert summarise([sampled(task, RIGHT) for task in named], name="n", label="l", step=0).row("all").clusters == 2
    alone = [make_task(str(index), world=None) for index in range(10)]
    assert summarise([sampled(task, RIGHT) for task in alone], name="n", label="l", step=0).row("all").clusters == 10
