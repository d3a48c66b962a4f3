"""Intervals of shares, with and without clusters."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.evaluation.intervals import (
    Z_95,
    compute_clustered_interval,
    compute_clustered_intervals,
    compute_share_interval,
    compute_wilson_interval,
)
from turnwise.evaluation.spread import estimate_freedom


def test_wilson_by_hand() -> None:
    # 8 of 10, z = 1.96: centre (0.8 + 0.19208)/(1.38416) = 0.716736..., half 1.96/1.38416*sqrt(0.016 + 0.009604) =
    # 0.226577...
    low, high = compute_wilson_interval(8, 10)
    assert low == pytest.approx(0.490159, abs=1e-5)
    assert high == pytest.approx(0.943312, abs=1e-5)
    # statsmodels 0.15 proportion_confint(3, 40, method="wilson")
    assert compute_wilson_interval(3, 40) == pytest.approx((0.025836025774588, 0.198642335243105))


def test_wilson_at_the_edges() -> None:
    assert compute_wilson_interval(0, 0) == (0.0, 1.0)
    low, high = compute_wilson_interval(0, 20)
    assert low == 0.0
    assert 0.1 < high < 0.2
    low, high = compute_wilson_interval(20, 20)
    assert high == 1.0
    assert 0.8 < low < 0.9
    with pytest.raises(ValueError, match="not a valid share"):
        compute_wilson_interval(3, 2)


def test_the_interval_of_a_share_holds_wilsons_and_the_mid_p_interval() -> None:
    # Mid-P of 0 of 5: the share p at which (1 - p)^5 / 2 = 0.025, 1 - 0.05^(1/5) = 0.4507; Wilson's ends at 0.4345.
    assert compute_share_interval(0, 5) == pytest.approx((0.0, 1 - 0.05**0.2))
    # Mid-P of 1 of 5 begins where P(more than 1) + P(1)/2 = 0.025; Wilson's at 0.0362, mid-P before it.
    low, high = compute_share_interval(1, 5)
    more = 1 - (1 - low) ** 5 - 5 * low * (1 - low) ** 4
    assert more + 5 * low * (1 - low) ** 4 / 2 == pytest.approx(0.025)
    assert high > 0.6
    assert compute_share_interval(0, 0) == (0.0, 1.0)
    # With many results both are one.
    assert compute_share_interval(300, 1000) == pytest.approx(compute_wilson_interval(300, 1000), abs=6e-4)


@given(st.integers(1, 60), st.data())
def test_the_interval_of_a_share_is_symmetric_and_holds_the_share(count: int, data: st.DataObject) -> None:
    won = data.draw(st.integers(0, count))
    low, high = compute_share_interval(won, count)
    wilson = compute_wilson_interval(won, count)
    assert 0 <= low <= wilson[0] <= wilson[1] <= high <= 1
    assert low <= won / count <= high
    assert compute_share_interval(count - won, count) == pytest.approx((1 - high, 1 - low))


def test_degrees_of_freedom_by_kurtosis() -> None:
    # Four residuals of one size have kurtosis 1: as many as the clusters allow, 4 - 1. One of five that differs from
    # the others: residuals 4, -1, -1, -1, -1, kurtosis 5 * 260 / 20^2 = 3.25, 2 * 5 / 2.25 = 4.44, of which 4 are left.
    assert estimate_freedom(np.array([[1.0, -1.0, 1.0, -1.0]]), 4.0).tolist() == [3.0]
    assert estimate_freedom(np.array([[4.0, -1.0, -1.0, -1.0, -1.0]]), 5.0).tolist() == [4.0]
    # One of 50 that differs: kurtosis 50 * (49^4 + 49) / (49^2 + 49)^2 = 48.02, 2 * 50 / 47.02 = 2.127.
    rare = np.array([[49.0] + [-1.0] * 49])
    assert estimate_freedom(rare, 50.0)[0] == pytest.approx(100 / (50 * (49**4 + 49) / (49**2 + 49) ** 2 - 1))
    assert estimate_freedom(np.zeros((1, 7)), 7.0).tolist() == [6.0]


def test_samples_of_one_task_are_no_independent_ones() -> None:
    # Two tasks, one always solved and one never, are two results however often each is tried: variance of the mean
    # = 2/1 * (4*0.5)^2 * 2 / 8^2 = 0.25, so 0.25 / 0.25 = 1 independent value, times (1.96 / 12.706)^2 for Student's t
    # with one degree of freedom.
    student = math.tan(math.pi * 0.475)  # the quantile of Cauchy's distribution
    scaled = (Z_95 / student) ** 2
    assert compute_clustered_interval([[1.0] * 4, [0.0] * 4]) == pytest.approx(
        compute_wilson_interval(0.5 * scaled, scaled)
    )
    # As different as the tasks of one sample each: nothing is lost.
    single = [[1.0], [0.0], [1.0], [1.0]]
    assert compute_clustered_interval(single) == compute_share_interval(3, 4)
    # Tasks that all behave alike: every sample counts, and none more than once; t with 49 degrees is 2.00958.
    scaled = 100 * (Z_95 / 2.0095752344892093) ** 2
    assert compute_clustered_interval([[1.0, 0.0]] * 50) == pytest.approx(compute_wilson_interval(scaled / 2, scaled))
    # All right, or one task: the tasks count.
    assert compute_clustered_interval([[1.0] * 8] * 10) == pytest.approx(compute_share_interval(10, 10))
    assert compute_clustered_interval([[1.0, 0.0, 1.0, 1.0]]) == compute_wilson_interval(0.75, 1)
    assert compute_clustered_interval([]) == (0.0, 1.0)
    assert compute_clustered_interval([[], []]) == (0.0, 1.0)


@pytest.mark.parametrize(("clusters", "size", "share"), [(50, 20, 0.02), (20, 10, 0.1), (40, 8, 0.5), (10, 10, 0.3)])
def test_intervals_of_several_samples_hold_the_truth_as_often_as_they_say(
    clusters: int, size: int, share: float
) -> None:
    # Intra-cluster correlation 0.5. Intervals that took samples for independent would hold it in about half.
    random = np.random.default_rng(5)
    sums = random.binomial(size, random.beta(share, 1 - share, (1500, clusters))).astype(float)
    low, high = compute_clustered_intervals(sums, np.full(clusters, float(size)))
    covered = ((low <= share) & (share <= high)).mean()
    bounds = [compute_wilson_interval(total, clusters * size) for total in sums.sum(axis=1)]
    naive = np.mean([bottom <= share <= top for bottom, top in bounds])
    assert 0.915 <= covered <= 0.98
    assert naive < 0.75


def test_one_row_and_many_rows_give_the_same_interval() -> None:
    clusters = [[1.0, 0.0, 1.0], [0.0, 0.0], [1.0], [1.0, 1.0, 0.0, 0.0]]
    sums, sizes = np.array([[sum(each) for each in clusters]] * 2), np.array([3.0, 2.0, 1.0, 4.0])
    low, high = compute_clustered_intervals(sums, sizes)
    assert [(float(a), float(b)) for a, b in zip(low, high, strict=True)] == [compute_clustered_interval(clusters)] * 2
