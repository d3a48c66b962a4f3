"""Tests that may stop at any time."""

import math

import numpy as np
import pytest

from turnwise.evaluation.sequential import MeanTest


def run(results: np.ndarray, threshold: float, least: float) -> MeanTest:
    test = MeanTest(threshold=threshold, least=least)
    for begin in range(0, len(results), 20):
        test.observe(results[begin : begin + 20])
        if test.decision:
            break
    return test


def test_the_error_is_held_however_often_one_looks() -> None:
    random = np.random.default_rng(0)
    said = sum(run(random.binomial(1, 0.5, 400), 0.5, 0.0).decision is not None for _ in range(300))
    assert said / 300 <= 0.05
    # A test that looks as often by a fixed-size interval says something wrong far more often.
    wrong = 0
    for _ in range(300):
        means = np.cumsum(random.binomial(1, 0.5, 400))[19::20] / np.arange(20, 401, 20)
        wrong += bool((abs(means - 0.5) > 1.96 * 0.5 / np.sqrt(np.arange(20, 401, 20))).any())
    assert wrong / 300 > 0.15


def test_a_clear_answer_comes_early() -> None:
    random = np.random.default_rng(1)
    tests = [run(random.binomial(1, 0.9, 1000), 0.5, 0.0) for _ in range(50)]
    assert {test.decision for test in tests} == {"above"}
    assert np.mean([test.count for test in tests]) < 60
    below = run(random.choice([-1.0, 0.0, 1.0], 1000, p=[0.3, 0.6, 0.1]), 0.0, -1.0)
    assert below.decision == "below"


def test_the_capital_by_hand() -> None:
    # Ten results of 1 against 0.5: a stake of share s grows (1 + s)^10; the mean over stakes is the capital.
    test = MeanTest(threshold=0.5)
    test.observe([1.0] * 10)
    stakes = [(math.sqrt(0.95) * index / 40) ** 2 for index in range(1, 41)]
    assert test.bound("above") == pytest.approx(40 / sum((1 + stake) ** 10 for stake in stakes))
    assert test.bound("below") == 1.0
    assert (test.count, test.mean) == (10, 1.0)
    # Equal results change nothing.
    before = test.bound("above")
    test.observe([0.5] * 100)
    assert test.bound("above") == pytest.approx(before)


def test_what_is_no_result_is_refused() -> None:
    test = MeanTest(threshold=0.5)
    for bad in (1.5, -0.1, math.nan):
        with pytest.raises(ValueError, match=r"outside \[0, 1\]"):
            test.observe([1.0, bad])
    assert test.count == 0
    assert math.isnan(test.mean)
    with pytest.raises(ValueError, match="nothing can be on its other side"):
        MeanTest(threshold=1.0)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        MeanTest(threshold=0.5, error=0.0)
