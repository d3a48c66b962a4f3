"""Votes and best-of-k, against every draw listed."""

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.types import Completion, FinishReason, StopReason, TurnScores, text_message, to_floats, to_ids
from turnwise.evaluation.attempts import compute_best_of, compute_majority_at
from turnwise.evaluation.choosing import Attempt, list_chosen, read_attempt
from turnwise.testing import make_trajectory, make_turn


def test_majority_by_hand() -> None:
    # a, a, b: of three pairs aa wins with a, and ab twice is a tie: (1 + 1/2 + 1/2) / 3.
    assert compute_majority_at(2, ["a", "a", "b"], [1, 1, 0]) == pytest.approx(2 / 3)
    assert compute_majority_at(3, ["a", "a", "b"], [1, 1, 0]) == 1.0
    assert compute_majority_at(1, ["a", "a", "b"], [1, 1, 0]) == pytest.approx(2 / 3)
    assert compute_majority_at(3, ["a", "b", "b"], [1, 0, 0]) == 0.0
    # An attempt without an answer is no vote; without any vote nothing is right.
    assert compute_majority_at(3, ["a", None, None], [1, 0, 0]) == 1.0
    assert compute_majority_at(2, [None, None], [0, 0]) == 0.0
    for k in (0, 4):
        with pytest.raises(ValueError, match=f"{k} of 3 attempts cannot be drawn"):
            compute_majority_at(k, ["a", "a", "b"], [1, 1, 0])


def vote(answers: Sequence[str | None], worth: dict[str, float]) -> float:
    counts = Counter(answer for answer in answers if answer is not None)
    top = [answer for answer, count in counts.items() if count == max(counts.values())]
    return sum(worth[answer] for answer in top) / len(top) if top else 0.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=7), st.data())
def test_majority_is_the_mean_over_every_draw(answers: list[str | None], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))
    worth = {"a": 1.0, "b": 0.0, "c": 0.25}
    successes = [worth.get(answer or "", 0.0) for answer in answers]
    draws = list(itertools.combinations(answers, k))
    expected = sum(vote(draw, worth) for draw in draws) / len(draws)
    assert compute_majority_at(k, answers, successes) == pytest.approx(expected)


def test_many_attempts_take_no_time() -> None:
    answers = [f"wrong {index}" for index in range(40)] + ["right"] * 24
    value = compute_majority_at(32, answers, [0.0] * 40 + [1.0] * 24)
    assert 0.999 < value <= 1.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=7), st.data())
def test_best_of_k_is_the_mean_over_every_draw(attempts: list[tuple[int, float]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(attempts)))
    total = 0.0
    draws = list(itertools.combinations(attempts, k))
    for draw in draws:
        best = [success for score, success in draw if score == max(each for each, _ in draw)]
        total += sum(best) / len(best)
    scores, successes = [score for score, _ in attempts], [success for _, success in attempts]
    assert compute_best_of(k, scores, successes) == pytest.approx(total / len(draws))
    # Scores that say nothing are worth what one attempt is.
    assert compute_best_of(k, [1.0] * len(attempts), successes) == pytest.approx(sum(successes) / len(successes))


def test_best_of_refuses_what_has_no_order() -> None:
    with pytest.raises(ValueError, match="score 2 is not a number"):
        compute_best_of(1, [0.5, float("nan")], [1, 0])
    with pytest.raises(ValueError, match="0 of 2 attempts"):
        compute_best_of(0, [0.5, 0.1], [1, 0])


def attempts(*pairs: tuple[str | None, float]) -> list[Attempt]:
    return [Attempt(success=float(a == "yes"), answer=a, scores={"process": score}) for a, score in pairs]


def test_choices_have_their_control_beside_them() -> None:
    # Votes: yes, yes, no -> of pairs 2/3 (above), all three 1. The score finds the right one in the second task only.
    tasks = [
        attempts(("yes", 0.1), ("yes", 0.2), ("no", 0.9)),
        attempts(("no", 0.1), ("no", 0.2), ("yes", 0.9)),
    ]
    rows = {(row.by, row.k): row for row in list_chosen([[task] for task in tasks], [2, 3])}
    assert rows["vote", 3].share == 0.5
    assert rows["vote", 3].control == pytest.approx(0.5)  # (2/3 + 1/3) / 2
    assert rows["vote", 2].share == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert rows["process", 3].share == 0.5  # wrong, right
    assert rows["process", 3].gain_low < 0 < rows["process", 3].gain_high
    assert all(row.n == 2 for row in rows.values())
    assert list_chosen([[[Attempt(success=1.0, answer=None, scores={})] * 2]], [2]) == ()
    # One cluster says nothing about others.
    (one,) = [row for row in list_chosen([tasks], [3]) if row.by == "vote"]
    assert (one.gain_low, one.gain_high) == (-1.0, 1.0)


def test_an_episode_gives_its_answer_and_the_likelihood_of_its_tokens() -> None:
    said = Completion(
        token_ids=to_ids([5, 6]),
        logprobs=to_floats([-1.0, -2.0]),
        finish_reason=FinishReason.STOP,
        version_first=0,
        version_last=0,
    )
    message, scores = text_message("assistant", "so <answer> The Hague </answer>"), TurnScores(process_score=0.75)
    trajectory = make_trajectory(make_turn([1], said, message=message, scores=scores))
    attempt = read_attempt([trajectory], 1.0)
    assert attempt.scores == {"likelihood": -1.5, "process": 0.75}
    assert attempt.answer == "hague"
    assert read_attempt([make_trajectory(stop=StopReason.MAX_TURNS)], 0.0).answer is None
    assert read_attempt([trajectory, trajectory], 0.5) == Attempt(success=0.5, answer=None, scores={})
