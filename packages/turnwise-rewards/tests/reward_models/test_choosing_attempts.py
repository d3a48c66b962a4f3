"""Choices among attempts, by hand."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.types import Trajectory, text_message
from turnwise.testing import make_trajectory, make_turn
from turnwise_rewards.reward_models.selection import (
    choose_best,
    choose_by_votes,
    choose_first,
    choose_right,
    fold_scores,
    rate_choices,
    score_at_random,
)


def answer(text: str, reward: float = 0.0, member: int = 0) -> Trajectory:
    turn = make_turn([1], [2], message=text_message("assistant", text))
    return make_trajectory(turn, reward=reward, member=member)


def by_member(scores: Sequence[float]) -> Callable[[Trajectory], float]:
    return lambda attempt: scores[attempt.id.member]


def test_folds() -> None:
    assert [fold_scores([0.5, 0.2, 0.8], how) for how in ("last", "min", "prod")] == [0.8, 0.2, pytest.approx(0.08)]
    assert fold_scores([], "last") == 0.0


def test_best_of_n_and_votes_may_differ() -> None:
    attempts = [answer("5", member=0), answer("6", member=1), answer(" 5 ", member=2)]
    scores = by_member([0.4, 0.7, 0.5])
    assert choose_best(scores)(attempts).id.member == 1
    # 5 has .4 + .5, 6 has .7.
    assert choose_by_votes(scores)(attempts).id.member == 0
    assert choose_by_votes(by_member([0.1, 0.7, 0.5]))(attempts).id.member == 1
    assert choose_first(attempts).id.member == 0


def test_an_oracle_takes_what_is_right() -> None:
    attempts = [answer("5"), answer("6", 1.0, 1)]
    assert choose_right(attempts).id.member == 1
    assert choose_right(attempts[:1]).id.member == 0


def test_scores_without_information_make_best_of_n_worse_than_one_sample() -> None:
    # A right answer has one text, wrong ones many: half of the attempts are right, but one draw stands for all of them.
    tasks = [
        [answer("right", 1.0, m) if m % 2 else answer(f"wrong {task} {m}", 0.0, m) for m in range(8)]
        for task in range(300)
    ]
    tasks = [[*task[task_number % 8 :], *task[: task_number % 8]] for task_number, task in enumerate(tasks)]
    ways = {"one": choose_first, "random": choose_by_seed, "majority": choose_by_votes(lambda attempt: 1.0)}
    rated = {each.name: each.share for each in rate_choices(tasks, ways, attempts=[8])}
    assert rated["one"] == pytest.approx(0.5, abs=0.01)
    # The right text wins one of five draws.
    assert rated["random"] == pytest.approx(0.2, abs=0.08)
    assert rated["majority"] == 1.0


def choose_by_seed(attempts: Sequence[Trajectory]) -> Trajectory:
    """Random scores that are drawn again for every task, which here all have the same right text."""
    others = "".join(attempt.turns[-1].message.text for attempt in attempts)
    return choose_best(score_at_random(zlib.crc32(others.encode())))(attempts)


def test_random_scores_are_equal_for_equal_attempts_and_depend_on_the_seed() -> None:
    assert score_at_random(0)(answer("5")) == score_at_random(0)(answer("5", member=3))
    assert score_at_random(0)(answer("5")) != score_at_random(1)(answer("5"))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_a_vote_with_equal_scores_is_the_majority(texts: list[str]) -> None:
    attempts = [answer(text, member=index) for index, text in enumerate(texts)]
    chosen = choose_by_votes(lambda attempt: 1.0)(attempts).turns[-1].message.text
    assert texts.count(chosen) == max(texts.count(text) for text in texts)


def test_too_few_attempts_are_refused() -> None:
    with pytest.raises(ValueError, match="1 tasks with at least 1 attempts; 2 needed"):
        rate_choices([[answer("5")]], {"one": choose_first}, attempts=[2])
