"""When the selection set ends training."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.evaluation.stopping import compute_sign_tail, count_without_progress, is_decline


def evaluation(*scores: float) -> dict[str, float]:
    return {f"t{index}": score for index, score in enumerate(scores)}


def test_the_tail_of_fair_coins_by_hand() -> None:
    assert compute_sign_tail(0, 0) == 1
    assert compute_sign_tail(6, 6) == 1 / 64
    assert compute_sign_tail(3, 4) == 5 / 16


@pytest.mark.parametrize(
    ("num_lost", "num_won", "num_compared", "declines"),
    [(5, 0, 1, False), (6, 0, 1, True), (6, 0, 2, False), (7, 0, 2, True), (9, 1, 1, True), (8, 2, 1, False)],
)
def test_a_decline_is_more_than_chance(num_lost: int, num_won: int, num_compared: int, declines: bool) -> None:
    # 6 of 6: 1/64 is at most 2.5%; 5 of 5: 1/32 is not. 9 of 10: 11/1024; 8 of 10: 56/1024.
    same = [1.0] * 40
    best = evaluation(*same, *[1.0] * num_lost, *[0.0] * num_won)
    now = evaluation(*same, *[0.0] * num_lost, *[1.0] * num_won)
    assert is_decline(best, now, num_compared=num_compared) is declines


def test_evaluations_count_from_the_best_on() -> None:
    low, high = evaluation(*[0.0] * 20), evaluation(*[1.0] * 20)
    one_less = evaluation(0.0, *[1.0] * 19)
    assert count_without_progress([low, high, one_less, one_less], "plateau") == 2
    assert count_without_progress([low, high, one_less, one_less], "decline") == 0
    assert count_without_progress([low, high, low, low], "decline") == 2
    assert count_without_progress([low, high, low, high, low], "decline") == 1, "only those in a row"
    assert count_without_progress([low, high, low, high], "plateau") == 2, "as good is not better"
    assert count_without_progress([high], "plateau") == count_without_progress([], "decline") == 0


def test_only_tasks_that_both_have_are_compared() -> None:
    best = evaluation(*[1.0] * 10)
    now = {f"other{index}": 0.0 for index in range(10)}
    assert not is_decline(best, now, num_compared=1)
    # Tasks with several samples are compared by their means.
    assert is_decline(evaluation(*[0.75] * 6), evaluation(*[0.5] * 6), num_compared=1)


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=5, max_size=5), max_size=8))
def test_a_decline_is_never_counted_where_a_plateau_is_not(table: Sequence[Sequence[float]]) -> None:
    evaluations = [evaluation(*row) for row in table]
    assert count_without_progress(evaluations, "decline") <= count_without_progress(evaluations, "plateau")
