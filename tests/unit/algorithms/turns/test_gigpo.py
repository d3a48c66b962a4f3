"""Anchor states: hand-computed, and the identities that tell a wrong grouping from a right one."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.algorithms.advantages import compute_grpo_advantages
from turnwise.algorithms.credit import CreditTrajectory, CreditTurn
from turnwise.algorithms.turns.gigpo import build_gigpo, compute_anchor_advantages, compute_gigpo_advantages

numbers = st.floats(-5, 5, allow_nan=False).map(lambda x: round(x, 2))
walks = st.lists(st.lists(st.tuples(st.sampled_from("abc"), numbers), min_size=1, max_size=5), min_size=2, max_size=5)


def test_gigpo_by_hand() -> None:
    # Outcomes 1 0, gamma 1/2. Returns: 1/2 1 and 0 0. Episode part +-1/2.
    # State "a" before both first turns: 1/2 0, mean 1/4 gives +-1/4. States "b", "c" are seen once: 0.
    got = compute_gigpo_advantages([1, 0], [[0, 0], [0, 0]], [["a", "b"], ["a", "c"]], gamma=0.5)
    assert got == [[0.75, 0.5], [-0.75, -0.5]]
    doubled = compute_gigpo_advantages([1, 0], [[0, 0], [0, 0]], [["a", "b"], ["a", "c"]], gamma=0.5, omega=2.0)
    assert doubled == [[1.0, 0.5], [-1.0, -0.5]]


def test_deviation_by_hand() -> None:
    # Returns 1 0 from one state: sample deviation sqrt(1/2), so +-(1/2) / sqrt(1/2) = +-sqrt(1/2). Population:
    # deviation 1/2, +-1.
    got = compute_anchor_advantages([[1.0], [0.0]], [["a"], ["a"]], deviation="sample", epsilon=0.0)
    assert got == [pytest.approx([math.sqrt(0.5)]), pytest.approx([-math.sqrt(0.5)])]
    assert compute_anchor_advantages([[1.0], [0.0]], [["a"], ["a"]], deviation="population", epsilon=0.0) == [
        [1.0],
        [-1.0],
    ]


def test_a_trajectory_counts_once_however_often_it_comes_back() -> None:
    # First trajectory visits "a" with returns 1 3 (mean 2), the second once with 0. Baseline (2 + 0) / 2 = 1, not 4/3.
    assert compute_anchor_advantages([[1.0, 3.0], [0.0]], [["a", "a"], ["a"]]) == [[0.0, 2.0], [-1.0]]


def test_a_trajectory_is_not_compared_with_itself() -> None:
    assert compute_anchor_advantages([[1.0, 3.0], [0.0]], [["a", "a"], ["b"]]) == [[0.0, 0.0], [0.0]]


def test_members_with_equal_means_and_different_visits_stay_finite() -> None:
    # Both visit "a" with returns 0 2: representatives agree (1, 1), the deviation over visits does not vanish:
    # sum over members of mean square (1 + 1)/2 is 2, over n-1 = 1: sqrt(2).
    got = compute_anchor_advantages([[0.0, 2.0], [0.0, 2.0]], [["a", "a"], ["a", "a"]], deviation="sample", epsilon=0.0)
    assert got == [pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2)])] * 2


@settings(max_examples=50)
@given(walks, st.sampled_from(["none", "sample", "population"]))
def test_step_advantages_of_a_state_sum_to_zero(walk: list[list[tuple[str, float]]], deviation: Any) -> None:
    states = [[s for s, _ in row] for row in walk]
    got = compute_anchor_advantages([[r for _, r in row] for row in walk], states, deviation=deviation)
    for state in "abc":
        # Averaged over a trajectory's visits, summed over trajectories.
        visits = [
            [a for a, s in zip(row, keys, strict=True) if s == state] for row, keys in zip(got, states, strict=True)
        ]
        assert math.fsum(math.fsum(v) / len(v) for v in visits if v) == pytest.approx(0.0, abs=1e-6)


@settings(max_examples=50)
@given(walks)
def test_without_omega_it_is_grpo_and_unique_anchors_add_nothing(walk: list[list[tuple[str, float]]]) -> None:
    rewards = [[r for _, r in row] for row in walk]
    outcomes = [0.0] * len(walk)
    expected = compute_grpo_advantages([math.fsum(row) for row in rewards], deviation="none")
    flat = [pytest.approx([value] * len(row), abs=1e-9) for value, row in zip(expected, rewards, strict=True)]
    states = [[s for s, _ in row] for row in walk]
    assert compute_gigpo_advantages(outcomes, rewards, states, omega=0.0) == flat
    unique = [[f"{i} {k}" for k in range(len(row))] for i, row in enumerate(walk)]
    assert compute_gigpo_advantages(outcomes, rewards, unique) == flat


@given(st.lists(numbers, min_size=2, max_size=6))
def test_one_turn_from_one_state_counts_the_episode_twice(outcomes: list[float]) -> None:
    once = compute_grpo_advantages(outcomes, deviation="none")
    got = compute_gigpo_advantages(outcomes, [[0.0]] * len(outcomes), [["s"]] * len(outcomes))
    assert got == [pytest.approx([2 * value]) for value in once if value is not None]


def test_states_of_other_tasks_are_not_anchors() -> None:
    def attempt(group: str, reward: float) -> CreditTrajectory:
        return CreditTrajectory(group=group, reward=reward, turns=(CreditTurn(num_tokens=1, state="start"),))

    got = build_gigpo()([attempt("x", 1.0), attempt("y", 0.0)])
    assert [float(turns[0][0]) for turns in got if turns] == [0.0, 0.0]


def test_an_unscored_member_is_no_anchor() -> None:
    def attempt(reward: float | None) -> CreditTrajectory:
        return CreditTrajectory(group="x", reward=reward, turns=(CreditTurn(num_tokens=1, state="start"),))

    first, second, none = build_gigpo()([attempt(1.0), attempt(0.0), attempt(None)])
    assert none is None
    # Episode part and anchor part +-1/2 each.
    assert first is not None
    assert second is not None
    assert (float(first[0][0]), float(second[0][0])) == (1.0, -1.0)


def test_nan_and_wrong_lengths_raise() -> None:
    with pytest.raises(ValueError, match="not finite"):
        compute_gigpo_advantages([1, 0], [[math.nan], [0]], [["a"], ["a"]])
    with pytest.raises(ValueError, match="shorter"):
        compute_anchor_advantages([[1.0, 2.0]], [["a"]])
