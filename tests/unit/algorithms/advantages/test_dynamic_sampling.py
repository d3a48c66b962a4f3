"""Which groups are kept, and how a step fills up within its budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import is_informative, plan_refill


@pytest.mark.parametrize("size", range(1, 17))
def test_constant_groups_are_dropped(size: int) -> None:
    for metric in (0.0, 1.0, 0.1, 0.7):
        assert not is_informative([metric] * size)
    assert size == 1 or is_informative([1.0] + [0.0] * (size - 1))


def test_a_deviation_test_would_keep_a_constant_group() -> None:
    assert np.std([0.1] * 3) > 0
    assert not is_informative([0.1] * 3)


def test_unscored_members_and_tolerance() -> None:
    assert not is_informative([])
    assert not is_informative([None, 1.0, None])
    assert is_informative([None, 1.0, 0.0])
    assert not is_informative([0.5, 0.55], tolerance=0.1)
    with pytest.raises(ValueError, match="not finite"):
        is_informative([1.0, math.nan])


def test_refill_by_hand() -> None:
    plan = lambda informative: plan_refill(informative, num_wanted=4, batch_size=8, max_batches=2)  # noqa: E731
    # Nothing seen: share (0 + 1) / (0 + 2), so 4 / (1/2) = 8 prompts.
    assert (plan([]).state, plan([]).num_prompts, plan([]).kept) == ("draw", 8, ())
    # 3 of 8 kept: share 4/10, one more needs 2.5, so 3.
    some = plan([True, False, False, True, False, False, True, False])
    assert (some.state, some.num_prompts, some.kept) == ("draw", 3, (0, 3, 6))
    # None of 8: share 1/10 asks for 40; the batch size and what is left of 16 allow 8.
    assert plan([False] * 8).num_prompts == 8
    assert plan([False] * 12).num_prompts == 4
    full = plan([True] * 6)
    assert (full.state, full.num_prompts, full.kept) == ("full", 0, (0, 1, 2, 3))


def test_a_spent_budget_returns_what_there_is() -> None:
    spent = plan_refill([False, True] + [False] * 14, num_wanted=4, batch_size=8, max_batches=2)
    assert (spent.state, spent.num_prompts, spent.kept) == ("spent", 0, (1,))
    assert plan_refill([False] * 16, num_wanted=4, batch_size=8, max_batches=2).kept == ()


@settings(max_examples=50)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.lists(st.booleans(), min_size=30, max_size=30))
def test_every_plan_ends_within_its_budget(
    num_wanted: int, batch_size: int, max_batches: int, stream: list[bool]
) -> None:
    drawn = 0
    while (
        plan := plan_refill(stream[:drawn], num_wanted=num_wanted, batch_size=batch_size, max_batches=max_batches)
    ).state == "draw":
        assert 1 <= plan.num_prompts <= batch_size
        drawn += plan.num_prompts
    assert drawn <= batch_size * max_batches
    assert all(stream[i] for i in plan.kept)
    assert len(plan.kept) == min(num_wanted, sum(stream[:drawn]))
    assert (plan.state == "full") == (len(plan.kept) == num_wanted)


def test_counts_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="num_wanted is 0"):
        plan_refill([], num_wanted=0, batch_size=1, max_batches=1)
