"""Differences of paired tasks, their tests, power, and several tests at once."""

import math

import numpy as np
import pytest

from turnwise.evaluation.multiple import adjust_holm
from turnwise.evaluation.paired import (
    compute_difference,
    compute_differences,
    compute_mcnemar,
    compute_sign_flips,
)
from turnwise.evaluation.power import compute_detectable, compute_power


def test_the_interval_of_a_difference_by_hand() -> None:
    # 8 tasks: 3 won, 1 lost, 4 equal. With one more of each: 4 won, 2 lost of 10, mean 0.2, squares 6 - 10 * 0.04 =
    # 5.6, standard error sqrt(8/7 * 5.6) / 10 = 0.25298.
    found = compute_difference([[1.0], [1.0], [1.0], [-1.0], [0.0], [0.0], [0.0], [0.0]])
    assert found.mean == 0.25
    assert found.standard_error == pytest.approx(math.sqrt(8 / 7 * 5.6) / 10)
    # Fourth powers: 4 * 0.8^4 + 2 * 1.2^4 + 4 * 0.2^4 = 5.792; kurtosis 10 * 5.792 / 5.6^2 = 1.847; 20 / 0.847 = 23.6,
    # of which 8 - 1 = 7 are left; Student's t is 2.36462.
    assert found.freedom == 7.0
    assert (found.low, found.high) == pytest.approx(
        (0.2 - 2.364624251 * found.standard_error, 0.2 + 2.364624251 * found.standard_error)
    )


def test_tasks_that_never_differ_leave_room_for_a_difference() -> None:
    found = compute_difference([[0.0]] * 20)
    assert found.low == -found.high < -0.05
    with pytest.raises(ValueError, match="at least two"):
        compute_difference([[1.0, 0.0]])


def test_tasks_of_a_cluster_are_one_result() -> None:
    apart = compute_difference([[1.0], [1.0], [-1.0], [0.0]] * 10)
    together = compute_difference([[1.0, 1.0], [-1.0, 0.0]] * 10)
    assert together.mean == apart.mean
    assert together.standard_error > 1.1 * apart.standard_error


def test_intervals_of_differences_hold_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(0)
    for count, lost, won in ((20, 0.1, 0.3), (200, 0.02, 0.02), (1000, 0.0, 0.02)):
        drawn = random.choice([-1.0, 0.0, 1.0], (1500, count), p=[lost, 1 - lost - won, won])
        low, high, _, _ = compute_differences(drawn, np.ones(count))
        covered = ((low <= won - lost) & (won - lost <= high)).mean()
        assert 0.935 <= covered <= 0.995


def test_mcnemar_agrees_with_statsmodels() -> None:
    # statsmodels 0.15: mcnemar([[0, b], [c, 0]], exact=True).pvalue
    for first_only, second_only, expected in (
        (1, 8, 0.0390625),
        (5, 5, 1.0),
        (12, 30, 0.007915897334897),
        (0, 3, 0.25),
    ):
        assert compute_mcnemar(first_only, second_only) == pytest.approx(expected)
    assert compute_mcnemar(0, 0) == 1.0


def test_flips_of_signs_are_mcnemars_test_where_both_apply() -> None:
    assert compute_sign_flips([-1.0] + [1.0] * 8 + [0.0] * 5) == pytest.approx(0.0390625)
    # Sums 3 and 1 of two clusters: of four flips, two are as far from 0 as 4.
    assert compute_sign_flips([3.0, 1.0]) == 0.5
    assert compute_sign_flips([0.0, 0.0]) == 1.0
    # One cluster that differs: both flips of its sign are as far from 0.
    assert compute_sign_flips([3.0]) == compute_sign_flips([0.0, -1.0]) == 1.0
    # Too many flips to list: drawn, with the same result every time.
    many = [1.0] * 30 + [-1.0] * 12
    assert compute_sign_flips(many) == compute_sign_flips(many) == pytest.approx(compute_mcnemar(12, 30), abs=0.003)


def test_holm_agrees_with_statsmodels() -> None:
    # statsmodels 0.15: multipletests(method="holm"); by hand 5 * .005, 4 * .01, 3 * .03, then no less than that.
    assert adjust_holm([0.01, 0.04, 0.03, 0.005, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.5])
    assert adjust_holm([]) == []
    assert adjust_holm([0.6, 0.7]) == [1.0, 1.0]


def test_power_agrees_with_statsmodels() -> None:
    # statsmodels 0.15: TTestPower().power(effect, n, 0.05) and solve_power(nobs=30, alpha=0.05, power=0.8)
    assert compute_power(0.3, standard_error=30**-0.5, freedom=29) == pytest.approx(0.35546273116552)
    assert compute_power(-0.05, standard_error=1000**-0.5, freedom=999) == pytest.approx(0.35204501264562)
    assert compute_detectable(standard_error=30**-0.5, freedom=29) == pytest.approx(0.52923570, rel=1e-3)
    # Without limit of freedom: 1.95996 + 0.84162 standard errors, found in 80%, and 5% where nothing differs.
    assert compute_detectable(standard_error=0.01) == pytest.approx(0.0280158, rel=1e-4)
    assert compute_power(0.0280158, standard_error=0.01) == pytest.approx(0.8, abs=1e-4)
    assert compute_power(0.0, standard_error=0.01) == pytest.approx(0.05, abs=1e-6)
    assert compute_power(0.1, standard_error=0.0) == 1.0
