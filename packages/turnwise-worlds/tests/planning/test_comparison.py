"""Picking an answer from several samples, and success at budgets."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.core.types import Invalid, Scored, Trajectory, text_message, to_ids
from turnwise.testing import make_group, make_trajectory, make_turn
from turnwise_worlds.planning.comparison import (
    pick_by_scores,
    pick_most_common,
    pick_right,
    rate_samples,
    score_ends,
)
from turnwise_worlds.planning.values import CheckedEnds, Judged, OutcomeValue, RandomValue


def say(text: str, reward: float, member: int) -> Trajectory:
    turn = make_turn([1], [ord(text[0])], message=text_message("assistant", text))
    return make_trajectory(turn, reward=reward, member=member)


GROUP = make_group(say("b", 0.0, 0), say("a", 1.0, 1), say("b", 0.0, 2), say("c", 0.0, 3))


def test_majority_takes_what_was_said_most_often_and_a_bound_what_is_right() -> None:
    assert pick_most_common(GROUP.trajectories).id.member == 0
    assert pick_right(GROUP.trajectories).id.member == 1
    assert pick_right(GROUP.trajectories[:1]).id.member == 0


def test_success_is_that_of_the_samples_a_budget_pays_for() -> None:
    points = rate_samples([GROUP], pick_right, budgets=[1, 2, 4, 8], per_sample=2)
    assert [(point.calls, point.right, point.tasks) for point in points] == [(1, 0, 1), (2, 0, 1), (4, 1, 1), (8, 1, 1)]
    shown = points[2].to_json()
    assert (shown["success"], shown["high"]) == (1.0, 1.0)
    assert 0.2 < shown["low"] < 0.21  # Wilson, one of one


def test_best_of_n_takes_the_greatest_score_and_equal_samples_have_equal_ones() -> None:
    by_outcome = pick_by_scores(score_ends([GROUP], OutcomeValue()))
    assert by_outcome(GROUP.trajectories).id.member == 1
    scores = score_ends([GROUP], RandomValue(3))
    members = [sample.id for sample in GROUP.trajectories]
    assert scores[members[0]] == scores[members[2]] != scores[members[3]]


def test_a_score_that_says_nothing_is_worse_than_one_sample_where_right_answers_coincide() -> None:
    def success(pick_count: int) -> float:
        wins = 0
        for seed in range(400):
            samples = [say("a", 1.0, 0), say("a", 1.0, 1), say("b", 0.0, 2), say("c", 0.0, 3)]
            group = make_group(*samples)
            kept: Sequence[Trajectory] = samples[-pick_count:]
            wins += pick_by_scores(score_ends([group], RandomValue(seed)))(kept).reward.total == 1.0  # type: ignore[union-attr]
        return wins / 400

    assert success(4) < 0.4  # one in three different answers, where two of four samples are right


def test_a_random_value_depends_on_the_tokens_and_the_seed_alone() -> None:
    states = [Judged(token_ids=GROUP.trajectories[0].turns[0].context_ids, environment=None, reward=None)] * 2
    assert len(set(RandomValue(0).score(states))) == 1
    assert RandomValue(0).score(states) != RandomValue(1).score(states)


def test_checked_ends_have_their_outcome_and_open_states_the_value_below() -> None:
    def judge(token: int, reward: Scored | Invalid | None) -> Judged:
        return Judged(token_ids=to_ids([token]), environment=None, reward=reward)

    states = [
        judge(1, None),
        judge(2, Scored(total=1.0)),
        judge(3, None),
        judge(4, Scored(total=0.0)),
        judge(5, Invalid(reason="crash", retryable=True)),
    ]
    below = RandomValue(0)
    [first], [third] = below.score(states[:1]), below.score(states[2:3])
    assert CheckedEnds(below).score(states) == [first, 1.0, third, 0.0, 0.0]
    assert CheckedEnds(below).score(states[1:2]) == [1.0]
