"""Values, advantages and gradients by enumeration: against arithmetic, brute force and finite differences."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laboratory.exact import (
    compute_gradient,
    compute_occupancy,
    compute_plan_probability,
    compute_success,
    compute_values,
    find_best_actions,
)
from laboratory.policy import (
    build_policy,
    compute_true_gradient,
    estimate_gradient,
    to_probabilities,
)
from laboratory.world import World, build_world
from laboratory.worlds import build_key_door, build_stochastic_tools


def build_three_states(max_turns: int = 2) -> World:
    """0 leads to 1 (action 0), or to 1 or 2 evenly (action 1); 1 succeeds with action 0; 2 succeeds one time in four
    with action 0."""
    steps: dict[Any, Any] = {
        (0,): [[(1.0, (1,))], [(0.5, (1,)), (0.5, (2,))]],
        (1,): [[(1.0, True)], [(1.0, False)]],
        (2,): [[(0.25, True), (0.75, False)], [(1.0, False)]],
    }
    return build_world(
        "three",
        summary="",
        starts=[(0,)],
        num_actions=2,
        max_turns=max_turns,
        step=lambda state, action: steps[state][action],
        observe=str,
        progress=lambda state: 0.0,
    )


POLICY = np.array([[0.5, 0.5], [0.8, 0.2], [0.4, 0.6]])


def random_policy(world: World, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(world.num_actions), size=world.num_states)


def enumerate_success(world: World, policy: np.ndarray, state: int, turn: int) -> float:
    """Sum over every sequence of actions and chance moves."""
    if state >= world.num_states:
        return float(state == world.success)
    if turn == world.max_turns:
        return 0.0
    total = 0.0
    for action in range(world.num_actions):
        first = world.first_probability[state, action]
        for share, target in ((first, 0), (1 - first, 1)):
            if share:
                after = enumerate_success(world, policy, int(world.next_states[state, action, target]), turn + 1)
                total += policy[state, action] * share * after
    return total


def test_three_states_by_hand() -> None:
    world = build_three_states()
    values = compute_values(world, POLICY)
    # V(1) = 0.8; V(2) = 0.4 * 0.25 = 0.1; Q(0, 0) = 0.8; Q(0, 1) = (0.8 + 0.1) / 2 = 0.45; V(0) = (0.8 + 0.45) / 2 =
    # 0.625.
    assert values.states[1, :3] == pytest.approx([0.0, 0.8, 0.1])
    assert values.states[0, 0] == pytest.approx(0.625)
    assert values.actions[0, 0] == pytest.approx([0.8, 0.45])
    assert values.advantages[0, 0] == pytest.approx([0.175, -0.175])
    # At turn 1: A(1, .) = 1 - 0.8 and 0 - 0.8; A(2, .) = 0.25 - 0.1 and 0 - 0.1.
    assert values.advantages[1, 1] == pytest.approx([0.2, -0.8])
    assert values.advantages[1, 2] == pytest.approx([0.15, -0.1])
    # Occupancy at turn 1: state 1 with 0.5 + 0.5 * 0.5 = 0.75, state 2 with 0.25.
    assert compute_occupancy(world, POLICY)[1] == pytest.approx([0.0, 0.75, 0.25])
    # Gradient: d * pi * A: 0.5 * 0.175 = 0.0875; 0.75 * 0.8 * 0.2 = 0.12; 0.25 * 0.4 * 0.15 = 0.015; the others cancel
    # per state.
    assert compute_gradient(world, POLICY, values) == pytest.approx(
        np.array([[0.0875, -0.0875], [0.12, -0.12], [0.015, -0.015]])
    )


def test_the_turn_limit_is_a_failure() -> None:
    # With one turn no policy gets past state 0; with three there is nothing left to do in the third.
    assert compute_success(build_three_states(1), compute_values(build_three_states(1), POLICY)) == 0.0
    assert compute_success(build_three_states(3), compute_values(build_three_states(3), POLICY)) == pytest.approx(0.625)


def test_best_policy_and_plan_probability_by_hand() -> None:
    world = build_three_states()
    best = compute_values(world, None)
    # Best: action 0 in 0, then action 0 in 1.
    assert compute_success(world, best) == 1.0
    assert find_best_actions(best)[0, 0].tolist() == [1.0, 0.0]
    table = compute_plan_probability(world, POLICY, best)
    # From 0: sqrt(0.5 * 0.8); from 1: 0.8; from 2: 0.4 (its best move may still fail, which ends the plan).
    assert table[0, 0] == pytest.approx(0.4**0.5)
    assert table[1, 1:3] == pytest.approx([0.8, 0.4])
    assert table[2, world.success] == 1.0
    assert table[2, world.failure] == 0.0
    assert table[2, 0] == 0.0  # no turns left


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_values_agree_with_brute_force(seed: int) -> None:
    world = build_stochastic_tools(num_steps=2, max_turns=4)
    policy = random_policy(world, seed)
    values = compute_values(world, policy)
    assert compute_success(world, values) == pytest.approx(
        enumerate_success(world, policy, world.starts[0], 0), abs=1e-12
    )
    assert (
        np.abs((policy * values.advantages).sum(axis=2)).max() < 1e-12
    )  # advantages have mean 0 in every state at every turn


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_the_gradient_agrees_with_finite_differences(seed: int) -> None:
    world = build_key_door(length=3, max_turns=7)
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(world.num_states, 3, 3))
    tokens = to_probabilities(logits)
    gradient = compute_true_gradient(world, tokens, compute_values(world, tokens[:, 1]))
    place = (int(rng.integers(world.num_states)), 1, int(rng.integers(3)))
    ends = []
    for shift in (1e-5, -1e-5):
        moved = logits.copy()
        moved[place] += shift
        ends.append(compute_success(world, compute_values(world, to_probabilities(moved)[:, 1])))
    assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)
    assert not gradient[:, [0, 2]].any()  # wording has no true gradient


def test_estimated_gradient_by_hand() -> None:
    tokens = np.array([[[0.5, 0.5], [0.8, 0.2], [0.5, 0.5]]])
    # One state, two turns in two trajectories. Turn 1 samples tokens 0, 1, 0 with advantages 1, 2, 0; turn 2 samples 1,
    # 0, 0 with 0, -1, 3.
    sampled, advantages = np.array([[0, 1, 0], [1, 0, 0]]), np.array([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]])
    gradient = estimate_gradient(tokens, np.array([0, 0]), sampled, advantages, 2)
    # Position 1: token 0 gets -1 - (2 - 1) * 0.8 = -1.8, token 1 gets 2 - (2 - 1) * 0.2 = 1.8; halved.
    assert gradient[0] == pytest.approx(np.array([[0.25, -0.25], [-0.9, 0.9], [0.75, -0.75]]))


def test_a_policy_of_wanted_quality() -> None:
    world = build_key_door()
    for success in (0.1, 0.9):
        tokens = to_probabilities(build_policy(world, success=success, rng=np.random.default_rng(0)))
        assert compute_success(world, compute_values(world, tokens[:, 1])) == pytest.approx(success, abs=1e-3)
    impossible = build_key_door(max_turns=3)
    with pytest.raises(ValueError, match=r"no policy of world 'key_door' with success 0\.5"):
        build_policy(impossible, success=0.5, rng=np.random.default_rng(0))


def test_branches_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"world 'odd', state \(0,\), action 0"):
        build_world(
            "odd",
            summary="",
            starts=[(0,)],
            num_actions=1,
            max_turns=1,
            step=lambda state, action: [(0.5, True), (0.4, False)],
            observe=str,
            progress=lambda state: 0.0,
        )
