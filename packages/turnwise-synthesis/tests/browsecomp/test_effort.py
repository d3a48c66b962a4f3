"""Success against effort: ways to choose, their control and their bound."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import DataError
from turnwise.core.types import Invalid, Scored, text_message
from turnwise.testing import make_group, make_trajectory, make_turn
from turnwise_synthesis.browsecomp.calibration import Outcome, Stated
from turnwise_synthesis.browsecomp.effort import (
    BOUND,
    WAYS,
    Attempt,
    choose_majority,
    choose_surest,
    choose_weighted,
    rate_budgets,
    rate_ways,
    read_questions,
)


def attempt(answer: str | None, right: bool, confidence: float | None = None, searches: int = 1) -> Attempt:
    """One attempt."""
    outcome = Outcome.MISSING if confidence is None else Outcome.STATED
    return Attempt(answer=answer, is_right=right, stated=Stated(outcome=outcome, value=confidence), searches=searches)


def points(questions, way: str) -> dict[int, float]:
    """Success by number of attempts."""
    return {point.attempts: point.success for point in rate_ways(questions) if point.way == way}


def test_votes_and_best_of_n_by_hand() -> None:
    attempts = [attempt("a", True, 0.3), attempt("b", False, 0.9), attempt("a", True, 0.4), attempt(None, False, 1.0)]
    for choose, answer in ((choose_majority, "a"), (choose_weighted, "b"), (choose_surest, "b")):
        chosen = choose(attempts, Random(0))
        assert chosen is not None
        assert chosen.answer == answer  # a: 2 votes, .7 of confidence; b: 1 vote, .9; no answer is no vote
    assert choose_majority([attempt(None, False)], Random(0)) is None


def test_the_control_is_one_attempt_and_pass_at_n_the_bound() -> None:
    right, wrong = attempt("a", True), attempt("b", False)
    questions = [[right, right, right, wrong], [wrong, wrong, right, wrong]]
    assert points(questions, "random (control)") == {1: 0.5, 2: 0.5, 4: 0.5}  # (3/4 + 1/4) / 2
    # one of two: 1 - 0/6 and 1 - C(3,2)/C(4,2) = 1/2
    assert points(questions, BOUND) == {1: 0.5, 2: 0.75, 4: 1.0}
    assert points(questions, "majority")[4] == 0.5  # right in the first, wrong in the second
    assert points(questions, "best by confidence") == {}  # nothing is stated, so there is no such way


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1)), min_size=4, max_size=4), min_size=1, max_size=5
    )
)
@settings(max_examples=6, deadline=None)
def test_no_way_is_above_the_bound_and_one_attempt_is_the_same_for_all(questions) -> None:
    tried = [[attempt(answer, answer == "a", confidence) for answer, confidence in each] for each in questions]
    bound = points(tried, BOUND)
    for way in WAYS:
        found = points(tried, way)
        assert all(found[n] <= bound[n] + 0.2 for n in bound)  # a mean over draws
        assert found[4] <= bound[4] + 1e-9  # all attempts: no draw


def test_questions_with_fewer_attempts_are_not_mixed_in() -> None:
    questions = [[attempt("a", True)] * 4, [attempt("b", False)]]
    assert points(questions, "majority") == {1: 1.0, 2: 1.0, 4: 1.0}


def test_budgets_by_hand() -> None:
    questions = [[attempt("a", True, searches=2), attempt("a", True, searches=5)], [attempt("b", False, searches=0)]]
    assert [point.success for point in rate_budgets(questions, (1, 2, 5))] == [0.0, 0.25, 0.5]


def test_no_question_is_no_zero() -> None:
    with pytest.raises(DataError, match=r"no question has a scored attempt"):
        rate_ways([])


def test_trajectories_are_read() -> None:
    reply = text_message("assistant", "<answer> Port Vessa </answer>\nConfidence: 70%")
    turn = make_turn([1], [2], message=reply)
    scored = make_trajectory(turn, reward=Scored.of(1.0, {"success": 1.0}))
    lost = make_trajectory(turn, reward=Invalid(reason="judge away", retryable=True), member=1)
    questions, invalid = read_questions([make_group(scored, lost)])
    assert invalid == 1
    [[found]] = questions
    assert (found.answer, found.is_right, found.searches) == ("port vessa", True, 0)
    assert math.isclose(found.stated.value or 0, 0.7)
