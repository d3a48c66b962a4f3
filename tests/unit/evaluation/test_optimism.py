"""What choosing the best of several evaluations adds to its score."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.evaluation.optimism import compute_optimism_of_equals, estimate_optimism


def test_the_best_of_equals_by_hand() -> None:
    assert compute_optimism_of_equals(1, 50, 0.3) == pytest.approx(0, abs=1e-12)
    # Of two evaluations of one task at 1/2, one succeeds with 3/4.
    assert compute_optimism_of_equals(2, 1, 0.5) == pytest.approx(0.25)
    # Two tasks: F(0) = 1/4, F(1) = 3/4, so the best has (15 + 7) / 16 successes on average.
    assert compute_optimism_of_equals(2, 2, 0.5) == pytest.approx(22 / 16 / 2 - 0.5)
    assert compute_optimism_of_equals(9, 5, 0.0) == compute_optimism_of_equals(9, 5, 1.0) == 0.0
    # For many tasks it is the expected maximum of 20 normal variables, 1.8675 standard errors.
    assert compute_optimism_of_equals(20, 10_000, 0.5) == pytest.approx(1.8675 * 0.005, rel=0.01)
    with pytest.raises(ValueError, match="0 evaluations of 5 tasks"):
        compute_optimism_of_equals(0, 5, 0.5)


@given(st.integers(1, 30), st.integers(1, 200), st.floats(0, 1))
def test_choosing_adds_something_between_nothing_and_all_that_is_left(count: int, tasks: int, success: float) -> None:
    added = compute_optimism_of_equals(count, tasks, success)
    assert -1e-9 <= added <= 1 - success + 1e-9


def test_evaluations_that_agree_task_by_task_add_nothing() -> None:
    scores = {f"t{index}": float(index % 3 == 0) for index in range(30)}
    assert estimate_optimism([scores] * 8) == pytest.approx(0)
    # One that is better at every task is always chosen, for what it is.
    assert estimate_optimism([dict.fromkeys(scores, 0.0), dict.fromkeys(scores, 1.0)]) == pytest.approx(0)


def test_independent_equals_add_what_the_formula_says() -> None:
    random = np.random.default_rng(0)
    found = []
    for _ in range(12):
        table = random.random((10, 200)) < 0.5
        estimate = estimate_optimism([{str(i): float(x) for i, x in enumerate(row)} for row in table])
        assert estimate is not None
        found.append(estimate)
    expected = compute_optimism_of_equals(10, 200, 0.5)
    assert np.mean(found) == pytest.approx(expected, abs=3 * float(np.std(found)) / math.sqrt(len(found)) + 0.002)


def test_too_little_gives_no_number() -> None:
    assert estimate_optimism([]) is None
    assert estimate_optimism([{"a": 1.0, "b": 0.0, "c": 1.0, "d": 0.0}]) is None
    assert estimate_optimism([{"a": 1.0, "b": 0.0, "c": 1.0}] * 2) is None
    # Tasks that only one has cannot be compared.
    assert estimate_optimism([{"a": 1.0, "b": 0.0, "c": 1.0, "d": 0.0}, {"x": 1.0, "y": 1.0, "z": 1.0}]) is None
