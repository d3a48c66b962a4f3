"""Token, turn and bi-level GAE: hand tables, identities I9 and I10, turns worth nothing, truncation."""

from __future__ import annotations

import numpy as np
import pytest
from credit_batches import flatten, make_trajectory, valued_trajectories
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import (
    compute_bilevel_gae,
    compute_discounted_returns,
    compute_gae,
    compute_trajectory_gae,
    compute_turn_gae,
)
from turnwise.algorithms.credit import CreditTrajectory, compute_token_rewards, compute_turn_rewards, join_turns
from turnwise.algorithms.credit_table import build_credit

shares = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def test_token_gae_by_hand() -> None:
    # Turns of 2 and 1 tokens, V = 1 2 4, outcome 8, gamma = lambda = 1/2. From the back:
    # t=2: d = 8 - 4 = 4, A = 4. t=1: d = 0 + 4/2 - 2 = 0, A = 0 + 4/4 = 1. t=0: d = 2/2 - 1 = 0, A = 1/4.
    trajectory = make_trajectory(8.0, [2, 1], values=[1.0, 2.0, 4.0])
    advantages, returns = compute_trajectory_gae(trajectory, gamma=0.5, gae_lambda=0.5)
    assert advantages.tolist() == [0.25, 1, 4]
    assert returns.tolist() == [1.25, 3, 8]


def test_truncated_trajectories_bootstrap_only_when_told() -> None:
    # One token, V = 1, outcome 0, value after it 3: "zero" 0 - 1, "value" 0 + 3 - 1.
    cut = make_trajectory(0.0, [1], values=[1.0], truncated=True, final_value=3.0)
    ended = make_trajectory(0.0, [1], values=[1.0], truncated=False, final_value=3.0)
    for compute in (compute_trajectory_gae, compute_bilevel_gae):
        assert compute(cut, bootstrap="zero")[0].tolist() == [-1]
        assert compute(ended, bootstrap="value")[0].tolist() == [-1]
    assert compute_trajectory_gae(cut, bootstrap="value")[0].tolist() == [2]
    assert compute_bilevel_gae(cut, bootstrap="value", turn_gamma=0.5)[0].tolist() == [0.5]
    assert compute_turn_gae(cut, bootstrap="value", gamma=0.5)[0].tolist() == [0.5]
    with pytest.raises(ValueError, match=r"final_value.*bootstrap='zero'"):
        compute_trajectory_gae(make_trajectory(0.0, [1], values=[1.0], truncated=True), bootstrap="value")


def test_turn_gae_by_hand() -> None:
    # Turns of 2, 1, 2 tokens, values at their first tokens 1 2 3, rewards 0 0 and 0 + 4; gamma 1/2, lambda 1.
    # k=2: 4 - 3 = 1. k=1: 3/2 - 2 = -1/2, plus 1/2 * 1 = 0. k=0: 2/2 - 1 = 0, plus 0.
    trajectory = make_trajectory(4.0, [2, 1, 2], values=[1.0, 9.0, 2.0, 3.0, 9.0])
    advantages, returns = compute_turn_gae(trajectory, gamma=0.5, gae_lambda=1.0)
    assert advantages.tolist() == [0, 0, 1]
    assert returns.tolist() == [1, 2, 4]
    (got,) = build_credit("turn_gae", {"gamma": 0.5, "gae_lambda": 1.0, "whitening": "none"})([trajectory])
    assert flatten(got) == [0, 0, 0, 1, 1]


def test_turn_gae_whitens_over_turns() -> None:
    # Turn advantages 1 and -1 (V = 0, one turn each): mean 0, n-1 deviation sqrt(2), whatever their lengths.
    batch = [make_trajectory(1.0, [5], values=[0.0] * 5), make_trajectory(-1.0, [0, 1], values=[0.0])]
    first, second = build_credit("turn_gae", {"epsilon": 0.0})(batch)
    assert flatten(first) == pytest.approx([0.5**0.5] * 5)
    assert flatten(second) == pytest.approx([-(0.5**0.5)])


def test_bilevel_gae_by_hand() -> None:
    # Turns of 2 and 1 tokens, V = 1 2 | 4, rewards 0 and 8, turn_gamma 1/2, token_gamma 1, lambda 1.
    # Turns: k=1: 8 - 4 = 4. k=0: 4/2 - 2 = 0, plus 1/2 * 4 = 2; it is worth nothing itself and still a step.
    # Inside turn 0 the last token's reward is 2 + 2 = 4: A = 4 - 2 = 2; before it 2 - 1 = 1, plus 2 = 3.
    trajectory = make_trajectory(8.0, [2, 1], values=[1.0, 2.0, 4.0])
    advantages, returns = compute_bilevel_gae(trajectory, turn_gamma=0.5)
    assert advantages.tolist() == [3, 2, 4]
    assert returns.tolist() == [4, 4, 8]


def test_bilevel_gae_reads_the_value_at_turn_ends() -> None:
    # Turns of 1 and 2 tokens, V = 2 | 4 1, turn_gamma = lambda = 1/2. Turns: k=1: 8 - 1 = 7. k=0: 1/2 - 2 = -3/2, plus
    # 7/4 = 1/4. Inside turn 1: last 8 - 1 = 7; before it 1 - 4 = -3, plus 7/2 = 1/2. (The value at the start of turn 1
    # would give k=0 a 1.)
    trajectory = make_trajectory(8.0, [1, 2], values=[2.0, 4.0, 1.0])
    assert compute_bilevel_gae(trajectory, turn_gamma=0.5, gae_lambda=0.5)[0].tolist() == [0.25, 0.5, 7]


@settings(max_examples=50)
@given(valued_trajectories(), shares)
def test_identities_of_gae(trajectory: CreditTrajectory, gamma: float) -> None:
    rewards, values = compute_token_rewards(trajectory), join_turns(trajectory, "values")
    advantages, returns = compute_gae(rewards, values, gamma=1.0, gae_lambda=1.0)
    assert advantages == pytest.approx(compute_discounted_returns(rewards, gamma=1.0) - values, abs=1e-9)
    assert returns == pytest.approx(advantages + values, abs=1e-9)
    error, _ = compute_gae(rewards, values, gamma=gamma, gae_lambda=0.0)
    assert error == pytest.approx(rewards + gamma * np.append(values[1:], 0.0) - values, abs=1e-9)
    plain, _ = compute_gae(rewards, np.zeros_like(values), gamma=1.0, gae_lambda=1.0)
    assert plain == pytest.approx(compute_discounted_returns(rewards, gamma=1.0), abs=1e-9)


@settings(max_examples=50)
@given(valued_trajectories(), shares, shares)
def test_cutting_into_turns_changes_nothing(trajectory: CreditTrajectory, gamma: float, gae_lambda: float) -> None:
    # I10: observations between turns are not in the arrays, so where the cuts are cannot matter to token GAE.
    total = sum(turn.num_tokens for turn in trajectory.turns)
    rewards, values = compute_token_rewards(trajectory), join_turns(trajectory, "values")
    by_token = make_trajectory(0.0, [1] * total, turn_rewards=rewards.tolist(), values=values)
    expected, _ = compute_trajectory_gae(trajectory, gamma=gamma, gae_lambda=gae_lambda)
    assert compute_trajectory_gae(by_token, gamma=gamma, gae_lambda=gae_lambda)[0] == pytest.approx(expected, abs=1e-9)
    # With one token per turn, turn GAE is token GAE, and so is the upper level of the bi-level form.
    assert compute_turn_gae(by_token, gamma=gamma, gae_lambda=gae_lambda)[0] == pytest.approx(expected, abs=1e-9)
    assert compute_bilevel_gae(by_token, turn_gamma=gamma, gae_lambda=gae_lambda)[0] == pytest.approx(
        expected, abs=1e-9
    )


@settings(max_examples=50)
@given(valued_trajectories(), shares, shares)
def test_bilevel_gae_meets_token_gae(trajectory: CreditTrajectory, gamma: float, gae_lambda: float) -> None:
    undiscounted, _ = compute_bilevel_gae(trajectory, turn_gamma=1.0)
    assert undiscounted == pytest.approx(compute_trajectory_gae(trajectory)[0], abs=1e-9)
    values = join_turns(trajectory, "values")
    one_turn = make_trajectory(float(compute_turn_rewards(trajectory).sum()), [values.size], values=values)
    bilevel, _ = compute_bilevel_gae(one_turn, turn_gamma=0.3, token_gamma=gamma, gae_lambda=gae_lambda)
    assert bilevel == pytest.approx(compute_trajectory_gae(one_turn, gamma=gamma, gae_lambda=gae_lambda)[0], abs=1e-9)


@pytest.mark.parametrize("name", ["gae", "turn_gae", "bilevel_gae"])
def test_unscored_and_empty_trajectories_stay_out_of_the_whitening(name: str) -> None:
    scored = [make_trajectory(1.0, [1], values=[0.0]), make_trajectory(-1.0, [1], values=[0.0])]
    others = [make_trajectory(None, [2], values=[7.0, 7.0]), make_trajectory(9.0, [0]), make_trajectory(9.0, [])]
    credit = build_credit(name, {"epsilon": 0.0})
    *both, unscored, empty, none = credit(scored + others)
    assert (
        [flatten(t) for t in both]
        == [flatten(t) for t in credit(scored)]
        == [[pytest.approx(0.5**0.5)], [pytest.approx(-(0.5**0.5))]]
    )
    assert unscored is None
    assert flatten(empty) == []
    assert none == []
    assert flatten(credit(scored[:1])[0]) == [0.0]  # one token has no deviation


def test_gae_refuses_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="one number per step"):
        compute_gae(np.zeros(2), np.zeros(3), gamma=1.0, gae_lambda=1.0)
    with pytest.raises(ValueError, match="non-finite"):
        compute_gae(np.zeros(2), np.array([0.0, np.nan]), gamma=1.0, gae_lambda=1.0)
    with pytest.raises(ValueError, match="gae_lambda"):
        compute_gae(np.zeros(2), np.zeros(2), gamma=1.0, gae_lambda=1.5)
