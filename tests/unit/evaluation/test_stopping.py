"""When the selection set ends training."""

from collections.abc import Mapping, Sequence
from typing import Literal

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
    ("num_lost", "num_won", "num_pairs", "declines"),
    [(4, 0, 1, False), (5, 0, 1, True), (5, 0, 2, False), (6, 0, 2, True), (9, 1, 2, True), (8, 2, 1, False)],
)
def test_a_decline_is_more_than_chance(num_lost: int, num_won: int, num_pairs: int, declines: bool) -> None:
    # 5 of 5: 1/32 is at most 5%; 4 of 4: 1/16 is not. 9 of 10: 11/1024 is at most 2.5%; 8 of 10: 56/1024.
    same = [1.0] * 40
    best = evaluation(*same, *[1.0] * num_lost, *[0.0] * num_won)
    now = evaluation(*same, *[0.0] * num_lost, *[1.0] * num_won)
    assert is_decline(best, now, num_pairs=num_pairs) is declines


def test_evaluations_count_from_the_best_on() -> None:
    low, high = evaluation(*[0.0] * 20), evaluation(*[1.0] * 20)
    one_less = evaluation(0.0, *[1.0] * 19)
    assert count([low, high, one_less, one_less], "plateau") == 2
    assert count([low, high, one_less, one_less], "decline") == 0
    assert count([low, high, low, low], "decline") == 2
    assert count([low, high, low, high, low], "decline") == 1, "only those in a row"
    assert count([low, high, low, high], "plateau") == 2, "as good is not better"
    assert count([high], "plateau") == count([], "decline") == 0


def test_a_run_that_makes_more_evaluations_needs_more_to_call_one_a_decline() -> None:
    # 8 of 8 is 1/256: enough for 10 pairs of 5 evaluations, and not for 15 of 6.
    low, high = evaluation(*[0.0] * 8), evaluation(*[1.0] * 8)
    assert count_without_progress([high, low], "decline", num_planned=5) == 1
    assert count_without_progress([high, low], "decline", num_planned=6) == 0


def count(evaluations: Sequence[Mapping[str, float]], on: Literal["decline", "plateau"]) -> int:
    return count_without_progress(evaluations, on, num_planned=len(evaluations))


def test_only_tasks_that_both_have_are_compared() -> None:
    best = evaluation(*[1.0] * 10)
    now = {f"other{index}": 0.0 for index in range(10)}
    assert not is_decline(best, now, num_pairs=1)
    # Tasks with several samples are compared by their means.
    assert is_decline(evaluation(*[0.75] * 6), evaluation(*[0.5] * 6), num_pairs=1)


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=5, max_size=5), max_size=8))
def test_a_decline_is_never_counted_where_a_plateau_is_not(table: Sequence[Sequence[float]]) -> None:
    evaluations = [evaluation(*row) for row in table]
    assert count(evaluations, "decline") <= count(evaluations, "plateau")
