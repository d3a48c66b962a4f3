"""Metrics: merging means what it says, and every name has a definition."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.metrics import METRICS, Definition, Max, Mean, Metric, Rate, Sum, define, merge, record

numbers = st.lists(st.floats(-1e3, 1e3), max_size=20)


def test_the_mean_of_two_parts_is_not_the_mean_of_their_means() -> None:
    # 1 1 1 1 and 6: (4 + 6) / 5 = 2, where the mean of means would be 3.5.
    assert Mean.of([1, 1, 1, 1]).merge(Mean.of([6])).value == 2.0


def test_rates_add_amounts_and_seconds() -> None:
    # 100 tokens in 1 s and 100 in 4 s are 200 in 5 s: 40 per second, not (100 + 25) / 2.
    assert Rate(100, 1).merge(Rate(100, 4)).value == 40.0


@given(numbers, numbers)
def test_merging_parts_equals_the_whole(a: list[float], b: list[float]) -> None:
    whole, parts = Mean.of(a + b), Mean.of(a).merge(Mean.of(b))
    assert parts.weight == whole.weight == len(a) + len(b)
    assert parts.value == pytest.approx(whole.value, rel=1e-9, abs=1e-9, nan_ok=True)


def test_nothing_recorded_is_nan_not_zero() -> None:
    assert math.isnan(Mean.of([]).value)
    assert math.isnan(Rate(0, 0).value)


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        (Sum(1), Sum(2), 3.0),
        (Max(1), Max(2), 2.0),
        (Max(-1), Max(-2), -1.0),
        (Mean(6, 3), Mean(2, 1), 2.0),
        (Rate(6, 3), Rate(2, 1), 2.0),
    ],
    ids=str,
)
def test_merge_by_name(a: Metric, b: Metric, value: float) -> None:
    merged = merge({"x": a, "only a": a}, {"x": b, "only b": b})
    assert merged["x"].value == value
    assert (merged["only a"], merged["only b"]) == (a, b)


def test_one_name_of_two_kinds_is_refused() -> None:
    with pytest.raises(TypeError, match="'x' is both Sum and Max"):
        merge({"x": Sum(1)}, {"x": Max(1)})


def test_any_name_is_a_metric_and_has_a_definition() -> None:
    assert record({"train/loss": Mean(3, 2), "engine/hits": Sum(4)}) == {"train/loss": 1.5, "engine/hits": 4}
    assert define("train/loss") is METRICS["train/loss"]
    kinds = [define("engine/hits", metric).kind for metric in (Mean(1), Sum(1), Max(1), Rate(1, 1))]
    assert kinds == ["mean", "sum", "max", "rate"]
    assert define("engine/hits") == Definition("mean", "", "engine/hits")


def test_every_definition_is_complete() -> None:
    for name, definition in METRICS.items():
        assert name.count("/") == 1
        assert definition.unit
        assert definition.text.endswith(".")
