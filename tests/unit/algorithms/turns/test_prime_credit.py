"""Implicit process rewards: conservation, leave-one-out by hand, whitening over the batch."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_rloo_advantages
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.turns.prime import build_prime, compute_implicit_rewards, compute_prime_returns

numbers = st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 2))


def member(reward: float | None, *turns: list[float], group: str = "g") -> CreditTrajectory:
    return CreditTrajectory(
        group=group,
        reward=reward,
        turns=tuple(CreditTurn(num_tokens=len(t), implicit_rewards=np.array(t)) for t in turns),
    )


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_implicit_rewards_sum_to_the_log_ratio(pairs: list[tuple[float, float]]) -> None:
    model, reference = np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])
    assert compute_implicit_rewards(model, reference, beta=0.05).sum() == pytest.approx(
        0.05 * (model.sum() - reference.sum()), abs=1e-9
    )


def test_returns_by_hand() -> None:
    # Implicit rewards 1 3 and 1; token means 2 and 1, each the other's baseline: 0 2 and -1.
    # Outcomes 1 0, leave-one-out 1 and -1 on the last token: 0 3 and -2. Rewards-to-go: 3 3 and -2.
    got = compute_prime_returns([1, 0], [np.array([1.0, 3.0]), np.array([1.0])])
    assert [a.tolist() for a in got] == [[3.0, 3.0], [-2.0]]
    # gamma 1/2: first token 0 + 3/2.
    assert compute_prime_returns([1, 0], [np.array([1.0, 3.0]), np.array([1.0])], gamma=0.5)[0].tolist() == [1.5, 3.0]


@settings(max_examples=50)
@given(st.lists(numbers, min_size=2, max_size=6))
def test_without_implicit_rewards_it_is_rloo(outcomes: list[float]) -> None:
    got = compute_prime_returns(outcomes, [np.zeros(2)] * len(outcomes))
    expected = compute_rloo_advantages(outcomes)
    assert [a.tolist() for a in got] == [pytest.approx([value] * 2, abs=1e-5) for value in expected]


def test_a_group_of_one_gives_exactly_zero() -> None:
    assert compute_prime_returns([0.7], [np.array([0.3, 0.1])])[0].tolist() == [0.0, 0.0]


def test_returns_run_across_turns_and_members_without_tokens_lend_no_baseline() -> None:
    batch = [member(1.0, [1.0], [3.0]), member(0.0, [1.0]), member(0.0, [])]
    # Token means 2 and 1 as above. Outcomes 1 0 0: leave-one-out 1, -1/2, -1/2. First: 0, 2 + 1: to go 3 | 3. Second:
    # -1 - 1/2.
    first, second, empty = build_prime(whitening="none")(batch)
    assert first is not None
    assert second is not None
    assert empty is not None
    assert [a.tolist() for a in first] == [[3.0], [3.0]]
    assert [a.tolist() for a in second] == [[-1.5]]
    assert [a.tolist() for a in empty] == [[]]


def test_whitening_is_over_all_tokens_of_the_batch() -> None:
    got = build_prime()([member(1.0, [0.0, 0.0]), member(0.0, [0.0]), member(None, [5.0])])
    assert got[2] is None
    tokens = np.concatenate([a for turns in got[:2] for a in turns or []])
    # Returns 1 1 -1: mean 1/3, n-1 deviation sqrt((4/9 + 4/9 + 16/9) / 2) = 2/sqrt(3): 1/sqrt(3) twice, -2/sqrt(3).
    assert tokens.tolist() == pytest.approx([1 / math.sqrt(3), 1 / math.sqrt(3), -2 / math.sqrt(3)], rel=1e-6)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        compute_prime_returns([1.0, 0.0], [np.array([math.nan]), np.array([0.0])])
    with pytest.raises(ValueError, match="implicit_rewards"):
        build_prime()([CreditTrajectory(group="g", reward=1.0, turns=(CreditTurn(num_tokens=2),))])
    with pytest.raises(ValueError, match="same tokens"):
        compute_implicit_rewards(np.zeros(2), np.zeros(3))
