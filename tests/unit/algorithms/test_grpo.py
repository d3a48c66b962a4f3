"""Group-relative advantages against hand-computed numbers and the invariants every user relies on."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_grpo_advantages, has_signal

rewards_strategy = st.lists(st.floats(-10, 10, allow_nan=False).map(lambda x: round(x, 3)), min_size=2, max_size=12)


def test_sample_deviation_by_hand() -> None:
    # rewards 1 0 0 0: mean 1/4; squares (9+1+1+1)/16 = 3/4; n-1 variance 1/4, deviation 1/2.
    # winner (3/4)/(1/2) = 1.5, losers (-1/4)/(1/2) = -0.5.
    assert compute_grpo_advantages([1, 0, 0, 0], deviation="sample", epsilon=0.0) == [1.5, -0.5, -0.5, -0.5]


def test_population_deviation_by_hand() -> None:
    # variance (3/4)/4 = 3/16, deviation sqrt(3)/4; winner (3/4)/(sqrt(3)/4) = sqrt(3), losers -1/sqrt(3).
    winner, *losers = compute_grpo_advantages([1, 0, 0, 0], deviation="population", epsilon=0.0)
    assert winner == pytest.approx(math.sqrt(3), abs=1e-12)
    assert losers == pytest.approx([-1 / math.sqrt(3)] * 3, abs=1e-12)


def test_no_deviation_is_centring_only() -> None:
    assert compute_grpo_advantages([1, 0, 0, 0], deviation="none") == [0.75, -0.25, -0.25, -0.25]


def test_epsilon_is_added_to_the_deviation() -> None:
    # deviation 1/2 plus 1/2 is 1: the advantage is the centred reward.
    assert compute_grpo_advantages([1, 0, 0, 0], deviation="sample", epsilon=0.5) == [0.75, -0.25, -0.25, -0.25]


def test_invalid_members_are_left_out_of_the_statistics() -> None:
    # Scored rewards 1 and 0: mean 1/2, n-1 variance (1/4+1/4)/1 = 1/2. The invalid third changes nothing and gets None.
    got = compute_grpo_advantages([1, None, 0], deviation="sample", epsilon=0.0)
    assert got == [pytest.approx(math.sqrt(0.5)), None, pytest.approx(-math.sqrt(0.5))]


@pytest.mark.parametrize("reward", [0.1, 0.3, 0.7, 1 / 3, 1e-9, -5.5, 0.0])
@pytest.mark.parametrize("size", range(1, 17))
def test_a_constant_group_is_exactly_zero(reward: float, size: int) -> None:
    # In floating point the mean of [0.1] * 3 is not 0.1; divided by a tiny deviation that would become signal.
    for deviation in ("sample", "population", "none"):
        assert compute_grpo_advantages([reward] * size, deviation=deviation, epsilon=0.0) == [0.0] * size  # type: ignore[arg-type]


def test_degenerate_groups() -> None:
    assert compute_grpo_advantages([]) == []
    assert compute_grpo_advantages([None, None]) == [None, None]
    assert compute_grpo_advantages([0.7]) == [0.0]
    assert compute_grpo_advantages([0.7, None]) == [0.0, None]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        compute_grpo_advantages([1.0, bad])


def test_negative_epsilon_is_refused() -> None:
    with pytest.raises(ValueError, match="epsilon"):
        compute_grpo_advantages([1.0, 0.0], epsilon=-1.0)


@settings(max_examples=50)
@given(rewards_strategy)
def test_advantages_sum_to_zero_and_have_the_known_square_sum(rewards: list[float]) -> None:
    got = [a for a in compute_grpo_advantages(rewards, deviation="sample", epsilon=0.0) if a is not None]
    assert sum(got) == pytest.approx(0.0, abs=1e-9)
    if has_signal(rewards):
        assert sum(a * a for a in got) == pytest.approx(len(rewards) - 1, rel=1e-9)
        population = compute_grpo_advantages(rewards, deviation="population", epsilon=0.0)
        assert sum(a * a for a in population if a is not None) == pytest.approx(len(rewards), rel=1e-9)


@settings(max_examples=50)
@given(rewards_strategy, st.floats(0.1, 10), st.floats(-5, 5))
def test_scale_and_shift_of_the_reward_change_nothing(rewards: list[float], scale: float, shift: float) -> None:
    if not has_signal(rewards) or max(rewards) - min(rewards) < 1e-2:
        return
    plain = compute_grpo_advantages(rewards, epsilon=0.0)
    changed = compute_grpo_advantages([scale * r + shift for r in rewards], epsilon=0.0)
    assert changed == pytest.approx(plain, abs=1e-6)
