"""REINFORCE, REINFORCE++ and ReMax: returns run across turns, rewards are kept, whitening counts sampled tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
from credit_batches import flatten, make_trajectory, numbers, valued_trajectories
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_discounted_returns, compute_whitened
from turnwise.algorithms.advantages.whitening import whiten_tokens
from turnwise.algorithms.credit import CreditTrajectory, compute_token_rewards, compute_total_reward
from turnwise.algorithms.credit_table import build_credit


def test_a_terminal_reward_reaches_the_first_turn() -> None:
    # I11: a return that restarted at observations would leave the first two turns with 0.
    batch = [make_trajectory(1.0, [2, 1, 3])]
    (got,) = build_credit("reinforce_plus_plus", {"whitening": "none"})(batch)
    assert flatten(got) == [1.0] * 6
    (discounted,) = build_credit("reinforce_plus_plus", {"whitening": "none", "gamma": 0.5})(batch)
    assert flatten(discounted) == [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]


def test_turn_rewards_count_from_their_turn_back() -> None:
    # Turns of 1 and 2 tokens worth 2 and 0, outcome 1: everything from token 0 on is 3, from token 1 on 1.
    (got,) = build_credit("reinforce_plus_plus", {"whitening": "none"})(
        [make_trajectory(1.0, [1, 2], turn_rewards=[2.0, 0.0])]
    )
    assert flatten(got) == [3, 1, 1]


def test_the_divergence_penalty_by_hand() -> None:
    # logprob - reference is 1, -2: penalties at 0.5 are 0.5, -1. Rewards -0.5, 1 + 1; returns 1.5, 2.
    batch = [make_trajectory(1.0, [1, 1], logprobs=[-1.0, -3.0], reference_logprobs=[-2.0, -1.0])]
    (got,) = build_credit("reinforce_plus_plus", {"whitening": "none", "kl_coefficient": 0.5})(batch)
    assert flatten(got) == [1.5, 2.0]
    with pytest.raises(ValueError, match="logprobs is missing"):
        build_credit("reinforce_plus_plus", {"kl_coefficient": 0.5})([make_trajectory(1.0, [1])])


def test_whitening_counts_tokens_not_trajectories() -> None:
    # Returns 1 1 1 0 over four tokens: mean 3/4, n-1 variance (3/16 + 9/16) / 3 = 1/4.
    batch = [
        make_trajectory(1.0, [2, 1], group="a"),
        make_trajectory(0.0, [1], group="b"),
        make_trajectory(None, [4], group="b"),
    ]
    first, second, third = build_credit("reinforce_plus_plus", {"epsilon": 0.0})(batch)
    assert flatten(first) == [0.5, 0.5, 0.5]
    assert flatten(second) == [-1.5]
    assert third is None


def test_the_baseline_form_by_hand() -> None:
    # Group a: 1 and 0 centre to +-0.5; b is alone, 0. Tokens 0.5 0.5 -0.5 0: mean 1/8, squares (9 + 9 + 25 + 1) / 64 =
    # 44/64.
    batch = [
        make_trajectory(1.0, [2], group="a"),
        make_trajectory(0.0, [1], group="a"),
        make_trajectory(5.0, [1], group="b"),
    ]
    std = math.sqrt(44 / 64 / 3)
    got = build_credit("reinforce_plus_plus_baseline", {"epsilon": 0.0})(batch)
    assert [flatten(t)[0] for t in got] == pytest.approx([0.375 / std, -0.625 / std, -0.125 / std])
    scaled = build_credit("reinforce_plus_plus_baseline", {"epsilon": 0.0, "whitening": "scale"})(batch)
    assert [flatten(t)[0] for t in scaled] == pytest.approx([0.5 / std, -0.5 / std, 0.0], abs=0)


def test_reinforce_and_remax_by_hand() -> None:
    batch = [make_trajectory(1.0, [1, 2], greedy_reward=0.25), make_trajectory(None, [2])]
    assert flatten(build_credit("reinforce")(batch)[0]) == [1, 1, 1]
    first, second = build_credit("remax")(batch)
    assert flatten(first) == [0.75] * 3
    assert second is None


def test_a_reward_on_an_empty_turn_is_not_lost() -> None:
    # Turns of 0, 2, 0 tokens worth 1, 2, 4, outcome 8: nothing lies before the only turn that sampled, so it gets all.
    assert compute_token_rewards(make_trajectory(8.0, [0, 2, 0], turn_rewards=[1.0, 2.0, 4.0])).tolist() == [0, 15]
    # Turns of 1, 0, 1: the middle one's reward goes back to the first.
    assert compute_token_rewards(make_trajectory(8.0, [1, 0, 1], turn_rewards=[1.0, 2.0, 4.0])).tolist() == [3, 12]


@settings(max_examples=50)
@given(valued_trajectories())
def test_reward_is_conserved(trajectory: CreditTrajectory) -> None:
    # I12, and the undiscounted return of the first token is all of it.
    rewards = compute_token_rewards(trajectory)
    assert rewards.sum() == pytest.approx(compute_total_reward(trajectory), abs=1e-9)
    assert compute_discounted_returns(rewards, gamma=1.0)[0] == pytest.approx(rewards.sum(), abs=1e-9)


@settings(max_examples=50)
@given(st.lists(st.lists(numbers, max_size=5), min_size=1, max_size=5))
def test_whitened_numbers_have_mean_zero_and_variance_one(rows: list[list[float]]) -> None:
    # I17; and numbers without a difference become exactly 0.
    arrays = [np.array(row, dtype=np.float64) for row in rows]
    whitened = np.concatenate(compute_whitened(arrays, epsilon=0.0))
    values = np.concatenate(arrays)
    if values.size < 2 or values.max() == values.min():
        assert not whitened.any()
    else:
        assert whitened.mean() == pytest.approx(0, abs=1e-9)
        assert whitened.var(ddof=1) == pytest.approx(1)


@pytest.mark.parametrize("value", [0.1, 0.7, -1e9])
def test_whitening_without_deviation(value: float) -> None:
    assert compute_whitened([np.full(3, value)])[0].tolist() == [0, 0, 0]
    assert compute_whitened([np.array([value])])[0].tolist() == [0]
    assert compute_whitened([np.full(3, value)], whitening="scale")[0].tolist() == [value] * 3
    assert compute_whitened([np.zeros(0)])[0].tolist() == []
    assert compute_whitened([]) == []
    with pytest.raises(ValueError, match="not finite"):
        compute_whitened([np.array([value, np.nan])])


def test_turns_keep_their_shapes_through_whitening() -> None:
    turns = [np.array([1.0]), np.zeros(0), np.array([3.0, 2.0])]
    first, second, third = whiten_tokens([turns, None, []], epsilon=0.0)
    assert first is not None
    assert [row.tolist() for row in first] == [[-1.0], [], [1.0, 0.0]]  # mean 2, n-1 deviation 1
    assert second is None
    assert third == []
