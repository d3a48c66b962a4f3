"""How small a difference n tasks see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.cards.sizes import compute_half_width, compute_power_of, compute_visible_difference


def test_half_of_the_interval() -> None:
    # Wilson at 50 of 100: 1.96 / (1 + 1.96^2 / 100) * sqrt(0.25 / 100 + 1.96^2 / 40000) = 1.8874 * 0.050951
    assert compute_half_width(100) == pytest.approx(0.09617, abs=1e-4)
    assert compute_half_width(0) == 0.5


def test_power_of_a_known_case() -> None:
    # Shares 0.5 and 0.6 of 400: error sqrt((0.25 + 0.24) / 400) = 0.035, shift 2.857, power P(Z > -0.897) = 0.815
    assert compute_power_of(400, 0.1) == pytest.approx(0.815, abs=1e-3)
    # No difference is found in 5% of the cases; nothing is known of no task.
    assert compute_power_of(400, 0.0) == pytest.approx(0.05, abs=1e-6)
    assert compute_power_of(0, 0.1) == 0.0
    assert compute_power_of(5, 0.5) > compute_power_of(5, 0.1)


def test_the_smallest_visible_difference() -> None:
    assert compute_visible_difference(400) == pytest.approx(0.099)  # 0.1 is seen with 81.5%
    assert compute_visible_difference(0) is None


@given(st.integers(2, 5000), st.floats(0.01, 0.3))
def test_more_tasks_see_more(count: int, difference: float) -> None:
    assert compute_power_of(count * 2, difference) >= compute_power_of(count, difference)
    assert compute_half_width(count * 2) < compute_half_width(count)
