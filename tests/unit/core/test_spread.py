"""Deviations, quantiles, minima and levels, by hand and in parts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.metrics import Deviation, Min, Quantile, merge
from turnwise.core.occupancy import Level

NUMBERS = st.lists(st.floats(-1e3, 1e3), max_size=12)


def test_a_deviation_by_hand() -> None:
    assert Deviation.of([1, 1, 4, 6]).value == pytest.approx(math.sqrt((4 + 4 + 1 + 9) / 4))
    assert Deviation.of([5]).value == 0
    assert math.isnan(Deviation.of([]).value)


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(1, 0.95, 1), (20, 0.95, 19), (21, 0.95, 20), (100, 0.95, 95), (4, 0.5, 2)]
)
def test_a_quantile_by_hand(count: int, share: float, expected: int) -> None:
    # The smallest of 1..count that at least the share does not exceed.
    assert Quantile(tuple(float(i) for i in range(count, 0, -1)), share).value == expected
    assert math.isnan(Quantile(()).value)


@given(NUMBERS, NUMBERS)
def test_parts_give_what_the_whole_gives(a: list[float], b: list[float]) -> None:
    whole, parts = Deviation.of([*a, *b]), Deviation.of(a).merge(Deviation.of(b))
    assert parts.count == whole.count
    if whole.count:
        assert parts.value == pytest.approx(whole.value, abs=1e-6)
        assert Quantile(tuple(a)).merge(Quantile(tuple(b))).value == Quantile((*a, *b)).value


def test_minima_merge() -> None:
    assert merge({"x": Min(2.0)}, {"x": Min(1.0)})["x"].value == 1.0


def test_a_level_is_weighed_by_time() -> None:
    level = Level(10.0)
    level.set(2, 11.0)  # 0 for 1 s, then 2 for 3 s, then 1 for 2 s
    level.set(1, 14.0)
    assert level.take(16.0) == (2 * 3 + 1 * 2, 6.0, 2)
    assert level.take(18.0) == (2.0, 2.0, 1), "what was before is taken, and the level stays"
