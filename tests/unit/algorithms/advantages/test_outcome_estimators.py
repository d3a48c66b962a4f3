"""Estimators that give one number per trajectory: hand tables, invariants I1 to I8, and what degenerate groups give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from credit_batches import flatten, group_rewards, make_trajectory
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import (
    compute_gdpo_advantages,
    compute_grpo_advantages,
    compute_max_rl_advantages,
    compute_opo_advantages,
    compute_pass_at_k_advantages,
    compute_rae_advantages,
    compute_rloo_advantages,
)
from turnwise.algorithms.credit_table import build_credit

Estimator = Callable[[Sequence[float | None]], list[float | None]]


def dr_grpo(rewards: Sequence[float | None]) -> list[float | None]:
    return compute_grpo_advantages(rewards, deviation="none")


def opo_of_rising_lengths(rewards: Sequence[float | None]) -> list[float | None]:
    return compute_opo_advantages(rewards, range(1, len(rewards) + 1))


ESTIMATORS: dict[str, Estimator] = {
    "grpo": compute_grpo_advantages,
    "dr_grpo": dr_grpo,
    "rloo": compute_rloo_advantages,
    "opo": opo_of_rising_lengths,
    "max_rl": compute_max_rl_advantages,
    "pass_at_k": compute_pass_at_k_advantages,
}
every_estimator = pytest.mark.parametrize("estimate", ESTIMATORS.values(), ids=ESTIMATORS.keys())


def test_rloo_by_hand() -> None:
    # 1 0 0 0: the winner's others average 0 -> 1; a loser's others are 1 0 0, average 1/3 -> -1/3.
    assert compute_rloo_advantages([1, 0, 0, 0]) == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3], abs=1e-15)
    # Left out, the None changes nothing: 3 and 1 alone, each against the other.
    assert compute_rloo_advantages([3, None, 1]) == [2, None, -2]


def test_opo_by_hand() -> None:
    # Lengths 1 2 5, rewards 1 0 1: baseline (1 + 0 + 5) / 8 = 3/4.
    assert compute_opo_advantages([1, 0, 1], [1, 2, 5]) == [0.25, -0.75, 0.25]
    # Without the third: (1 + 0) / 3.
    assert compute_opo_advantages([1, 0, None], [1, 2, 5]) == pytest.approx([2 / 3, -1 / 3, None])
    # A member without sampled tokens does not move the baseline: 1 * 2 / 2 = 1.
    assert compute_opo_advantages([1, 0], [2, 0]) == [0, -1]
    # Without a single sampled token there is no baseline and nothing to train.
    assert compute_opo_advantages([1, 0], [0, 0]) == [0, 0]
    with pytest.raises(ValueError, match="length -1 is negative"):
        compute_opo_advantages([1, 0], [2, -1])


def test_max_rl_by_hand() -> None:
    # 1 0 0 0: mean 1/4; winner (3/4)/(1/4) = 3, losers -1.
    assert compute_max_rl_advantages([1, 0, 0, 0]) == [3, -1, -1, -1]
    assert compute_max_rl_advantages([0, 0, None]) == [0, 0, None]
    with pytest.raises(ValueError, match=r"-0\.5 is negative.*grpo"):
        compute_max_rl_advantages([1, -0.5])


def test_pass_at_k_by_hand() -> None:
    # 3 1 1 -1: mean 1, squares 4 0 0 4, n-1 variance 8/3; best (3 - 1) / sqrt(8/3).
    got = compute_pass_at_k_advantages([3, 1, 1, -1], epsilon=0.0)
    assert got == pytest.approx([2 / math.sqrt(8 / 3), 0, 0, 0], abs=1e-15)
    assert compute_pass_at_k_advantages([3, None, 1], deviation="none") == [2, None, 0]
    # Two share the best: neither alone adds to the maximum.
    assert compute_pass_at_k_advantages([1, 1, 0]) == [0, 0, 0]
    assert compute_pass_at_k_advantages([0.1 + 0.2, 0.3, 0]) == [0, 0, 0]  # 0.30000000000000004 and 0.3 are a tie


def test_gdpo_by_hand() -> None:
    # correct 1 0: deviation sqrt(1/2) -> +-1/sqrt(2). format 0 1: the opposite, weighted 1/2.
    parts = [{"correct": 1.0, "format": 0.0}, {"correct": 0.0, "format": 1.0}]
    got = compute_gdpo_advantages(parts, weights={"correct": 1.0, "format": 0.5}, epsilon=0.0)
    assert got == pytest.approx([0.5 / math.sqrt(2), -0.5 / math.sqrt(2)])
    # A constant part adds nothing however large; added before normalising it would be the same, but 0 * 2 + 1 and 1 * 2
    # + 0 would not.
    constant = [{"correct": 1.0, "format": 100.0}, {"correct": 0.0, "format": 100.0}]
    assert compute_gdpo_advantages(constant, weights={"correct": 1.0, "format": 1.0}, epsilon=0.0) == pytest.approx(
        [1 / math.sqrt(2), -1 / math.sqrt(2)]
    )
    with pytest.raises(ValueError, match="'format' is missing"):
        compute_gdpo_advantages([{"correct": 1.0}, None], weights={"format": 1.0})


def test_gdpo_whitens_over_trajectories_or_tokens() -> None:
    # Two groups of two, one part. Sums +-1/sqrt(2) twice: mean 0, n-1 variance 4 * (1/2) / 3 = 2/3 -> +-sqrt(3)/2.
    batch = [make_trajectory(0.0, [3 if i else 1], group=f"g{i // 2}", parts={"a": 1.0 - i % 2}) for i in range(4)]
    got = build_credit("gdpo", {"epsilon": 0.0})(batch)
    assert [flatten(turns)[0] for turns in got] == pytest.approx([math.sqrt(3) / 2, -math.sqrt(3) / 2] * 2)
    # Over tokens: + - - - + + + - - - (in 1/sqrt(2)), mean -2/10, so the number of positive tokens matters.
    by_token = build_credit("gdpo", {"epsilon": 0.0, "normalization": "tokens"})(batch)
    tokens = np.array([x for turns in by_token for x in flatten(turns)])
    signs = np.array([1, -1, -1, -1, 1, 1, 1, -1, -1, -1])
    assert tokens == pytest.approx((signs + 0.2) / np.std(signs, ddof=1))


def test_rae_by_hand() -> None:
    # Baselines start at 0; decay 0.9: white gets 0.1 * mean(1, 0) = 0.05, black 0.1 * -1.
    advantages, baselines = compute_rae_advantages([1, 0, -1, None], ["white", "white", "black", "red"], {}, decay=0.9)
    assert advantages == [1, 0, -1, None]
    assert baselines == pytest.approx({"white": 0.05, "black": -0.1})
    # 1 - 0.05 before the update; then 0.9 * 0.05 + 0.1 * 1.
    advantages, after = compute_rae_advantages([1], ["white"], baselines, decay=0.9)
    assert advantages == pytest.approx([0.95])
    assert after == pytest.approx({"white": 0.145, "black": -0.1})
    assert baselines["white"] == pytest.approx(0.05)  # the state that was given is left alone


@every_estimator
@pytest.mark.parametrize("reward", [0.1, 0.3, 0.7, 1 / 3, 1e-9, 0.0])
def test_a_constant_group_is_exactly_zero_in_float32(estimate: Estimator, reward: float) -> None:
    for size in range(1, 17):
        for value in (reward, float(np.float32(reward))):
            assert not np.any(np.array(estimate([value] * size), dtype=np.float32))


@every_estimator
def test_rounding_is_no_signal(estimate: Estimator) -> None:
    # 0.1 + 0.2 is 0.30000000000000004: divided by its tiny deviation the difference would become an advantage near 1.
    assert estimate([0.1 + 0.2, 0.3, 0.3]) == [0.0, 0.0, 0.0]


@every_estimator
def test_degenerate_groups(estimate: Estimator) -> None:
    assert estimate([]) == []
    assert estimate([None, None]) == [None, None]
    assert estimate([0.7]) == [0.0]
    assert estimate([0.7, None]) == [0.0, None]
    with pytest.raises(ValueError, match="not finite"):
        estimate([1.0, math.nan])


@settings(max_examples=50)
@given(group_rewards)
def test_sums_and_ratios(rewards: list[float]) -> None:
    centred = np.array(dr_grpo(rewards))
    assert centred.sum() == pytest.approx(0, abs=1e-9)
    n = len(rewards)
    assert compute_rloo_advantages(rewards) == pytest.approx(centred * n / (n - 1), abs=1e-12)
    assert sum(a for a in compute_max_rl_advantages([abs(r) for r in rewards]) if a is not None) == pytest.approx(
        0, abs=1e-9
    )
    assert compute_opo_advantages(rewards, [3] * n) == pytest.approx(centred, abs=1e-12)


@settings(max_examples=50)
@given(group_rewards, st.data())
def test_opo_weighted_sum_is_zero(rewards: list[float], data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 50), min_size=len(rewards), max_size=len(rewards)))
    advantages = np.array(compute_opo_advantages(rewards, lengths), dtype=float)
    assert np.dot(lengths, advantages) == pytest.approx(0, abs=1e-9)


@settings(max_examples=50)
@given(group_rewards, st.floats(0.5, 8), st.integers(-8, 8))
def test_scale_and_shift(rewards: list[float], scale: float, shift: int) -> None:
    changed = [scale * r + shift for r in rewards]
    for estimate in (dr_grpo, compute_rloo_advantages, opo_of_rising_lengths):
        plain = np.array(estimate(rewards))
        assert estimate(changed) == pytest.approx(scale * plain, abs=1e-9)
    grpo = compute_grpo_advantages(rewards, epsilon=0.0)
    assert compute_grpo_advantages(changed, epsilon=0.0) == pytest.approx(grpo, abs=1e-9)
    positive = [abs(r) for r in rewards]
    assume(max(positive) > 0)
    assert compute_max_rl_advantages([scale * r for r in positive]) == pytest.approx(
        compute_max_rl_advantages(positive), abs=1e-9
    )


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "opo", "max_rl", "pass_at_k"])
@settings(max_examples=20)
@given(data=st.data())
def test_groups_go_by_key_and_turns_do_not_count(name: str, data: st.DataObject) -> None:
    rewards = data.draw(st.lists(st.integers(0, 4), min_size=4, max_size=8))
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=len(rewards), max_size=len(rewards)))
    rows = [make_trajectory(r, [n], group=f"g{i % 2}") for i, (r, n) in enumerate(zip(rewards, lengths, strict=True))]
    credit = build_credit(name)
    plain = [flatten(turns)[0] for turns in credit(rows)]
    # I6: another order, and a group that has nothing to do with these.
    order = data.draw(st.permutations(range(len(rows))))
    moved = credit(
        [rows[i] for i in order] + [make_trajectory(9, [9], group="other"), make_trajectory(1, group="other")]
    )
    assert [flatten(moved[order.index(i)])[0] for i in range(len(rows))] == plain
    # I8: the same tokens cut into single-token turns.
    split = [
        make_trajectory(r, [1] * n, group=f"g{i % 2}") for i, (r, n) in enumerate(zip(rewards, lengths, strict=True))
    ]
    for value, n, turns in zip(plain, lengths, credit(split), strict=True):
        assert flatten(turns) == [value] * n


def test_turn_rewards_count_towards_the_total() -> None:
    # Totals 1 + 0.5 and 0.5 + 0: centred +-0.5.
    batch = [make_trajectory(1.0, [1, 2], turn_rewards=[0.5, 0.0]), make_trajectory(0.5, [1])]
    got = build_credit("dr_grpo")(batch)
    assert [flatten(turns) for turns in got] == [[0.5] * 3, [-0.5]]


def test_a_trajectory_without_sampled_tokens_counts_and_trains_nothing() -> None:
    batch = [make_trajectory(1.0, [2]), make_trajectory(0.0, [0]), make_trajectory(0.0, [])]
    first, second, third = build_credit("dr_grpo")(batch)
    assert flatten(first) == pytest.approx([2 / 3, 2 / 3])  # 1 - (1 + 0 + 0) / 3
    assert flatten(second) == []
    assert third == []
