"""Measures of scores, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise_rewards.reward_models.calibration import measure_scores


def test_measures_of_four_scores() -> None:
    quality = measure_scores([0.05, 0.25, 0.75, 0.95], [0, 1, 0, 1])
    # Pairs (right, wrong): .25 > .05, .25 < .75, .95 > .05, .95 > .75: 3 of 4.
    assert quality.auc == 0.75
    # (.0025 + .5625 + .5625 + .0025) / 4
    assert quality.brier == pytest.approx(0.2825)
    # Each score is alone in its bin: (.05 + .75 + .75 + .05) / 4
    assert quality.calibration_error == pytest.approx(0.4)
    # Both sides have mean 1/2; sum of products .45*.5 - .25*.5 - .25*.5 + .45*.5 = .2; squares .53 and 1.
    assert quality.correlation == pytest.approx(0.2 / 0.53**0.5)
    assert [each.count for each in quality.bins] == [1, 1, 1, 1]


def test_a_bin_has_the_wilson_interval_of_its_share() -> None:
    [one] = measure_scores([0.52] * 4, [1, 1, 1, 0]).bins
    assert (one.count, one.right) == (4, 0.75)
    assert one.score == pytest.approx(0.52)
    # z = 1.96, n = 4, p = 3/4: (.75 + .4802) / 1.9604 -+ 1.96 / 1.9604 * sqrt(.1875 / 4 + .0600)
    assert one.low == pytest.approx(0.3006, abs=1e-3)
    assert one.high == pytest.approx(0.9544, abs=1e-3)


def test_scores_that_say_nothing_are_reported_as_such() -> None:
    quality = measure_scores([0.5, 0.5], [1, 0])
    assert (quality.auc, quality.correlation, quality.brier) == (0.5, None, 0.25)
    assert measure_scores([0.2, 0.8], [1, 1]).auc is None
    with pytest.raises(ValueError, match="0 scores for 0 true values"):
        measure_scores([], [])


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_bins_hold_every_score_once(pairs: list[tuple[float, bool]]) -> None:
    quality = measure_scores([score for score, _ in pairs], [float(right) for _, right in pairs])
    assert sum(each.count for each in quality.bins) == len(pairs)
    assert sum(each.count * each.right for each in quality.bins) == pytest.approx(sum(right for _, right in pairs))
    assert 0 <= quality.calibration_error <= 1
