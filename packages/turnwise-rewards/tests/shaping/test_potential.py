"""Which forms of a progress reward leave the best policy alone: value iteration in a small world, nothing sampled."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laboratory.exact import OPTIMAL_TOLERANCE, compute_values
from laboratory.world import build_world
from laboratory.worlds import build_key_door

from turnwise.algorithms.turns.potential import compute_shaping
from turnwise.core.types import TurnScores
from turnwise.testing import make_group, make_trajectory, make_turn
from turnwise_rewards.shaping.progress import ProgressOptions, measure_progress

KEY_DOOR = build_key_door(length=3, max_turns=8)


def pay_potential(before, after):
    """The core's potential-based form, for one turn: `Phi(s') - Phi(s)`, where the end has potential 0."""
    return compute_shaping([before, 0.0 if after is None else after])[0]


def pay_arrival(before, after):
    """Planted: the value of where a turn leads, not the gain."""
    return 0.0 if after is None else after


def pay_kept(before, after):
    """The part `progress` on potentials: the gain, of which the end takes nothing back."""
    return 0.0 if after is None else after - before


def find_best(world, potential, pay):
    """`[T, S, A]`: the actions of a best policy where every turn is also paid `pay(Phi(s), Phi(s'))`; the last two
    states, failure and success, and the turn limit are ends."""
    num_states = world.num_states
    values = np.zeros((world.max_turns + 1, num_states + 2))
    values[:, world.success] = 1.0
    best = np.zeros((world.max_turns, num_states, world.num_actions), bool)
    for turn in reversed(range(world.max_turns)):
        worth = np.zeros((num_states, world.num_actions))
        for state in range(num_states):
            for action in range(world.num_actions):
                chances = (world.first_probability[state, action], 1 - world.first_probability[state, action])
                for target, chance in zip(world.next_states[state, action], chances, strict=True):
                    ends = target >= num_states or turn + 1 == world.max_turns
                    paid = pay(potential[state], None if ends else potential[target])
                    worth[state, action] += chance * (paid + values[turn + 1, target])
        values[turn, :num_states] = worth.max(axis=1)
        best[turn] = worth >= worth.max(axis=1, keepdims=True) - OPTIMAL_TOLERANCE
    return best


def find_true_best(world):
    values = compute_values(world, None)
    return values.actions >= values.states[:-1, : world.num_states, None] - OPTIMAL_TOLERANCE


def test_without_shaping_the_two_value_iterations_agree() -> None:
    best = find_best(KEY_DOOR, np.zeros(KEY_DOOR.num_states), pay_potential)
    assert (best == find_true_best(KEY_DOOR)).all()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=KEY_DOOR.num_states, max_size=KEY_DOOR.num_states))
def test_no_potential_changes_the_best_policy(potential) -> None:
    """Ng, Harada and Russell 1999, with the turn limit as an end of potential 0."""
    assert (find_best(KEY_DOOR, potential, pay_potential) == find_true_best(KEY_DOOR)).all()


@pytest.mark.parametrize("pay", [pay_arrival, pay_kept])
def test_a_planted_form_that_is_no_potential_changes_it(pay) -> None:
    """With the world's own guess of its progress, which is highest before the door: there it pays to wait."""
    changed = find_best(KEY_DOOR, 4 * KEY_DOOR.progress, pay)
    assert (changed != find_true_best(KEY_DOOR)).any()


def build_detour():
    """Solve at once, or walk to where progress is high and the task fails."""
    steps: dict[tuple[int, ...], list[Any]] = {(0,): [(1,), True], (1,): [False, False]}
    return build_world(
        "detour",
        summary="",
        starts=[(0,)],
        num_actions=2,
        max_turns=2,
        step=lambda state, action: [(1.0, steps[state][action])],
        observe=str,
        progress=lambda state: 2.0 * state[0],
    )


def test_progress_that_is_kept_prefers_a_failure_that_went_far() -> None:
    world = build_detour()
    assert find_best(world, world.progress, pay_kept)[0, 0].tolist() == [True, False]
    assert find_best(world, world.progress, pay_potential)[0, 0].tolist() == [False, True]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_the_part_pays_what_the_potential_form_takes_back(potentials) -> None:
    """So the potential form sums to -Phi(s_0) for every member of a group and is no part of a trajectory's sum."""
    turns = [
        make_turn([1], [2], parent=at - 1 if at else None, scores=TurnScores(potential=value))
        for at, value in enumerate(potentials)
    ]
    kept = measure_progress(make_group(make_trajectory(*turns)), 0, ProgressOptions(source="potential")).value
    assert sum(compute_shaping(potentials)) == pytest.approx(-potentials[0])
    assert kept == pytest.approx(sum(compute_shaping(potentials)) + potentials[-1])
