"""What the worlds promise: what decides, what does not, how long they are; and that sampling follows the same rules."""

import numpy as np
import pytest
from laboratory.exact import compute_success, compute_values
from laboratory.paths import Paths, fork_paths, sample_entropy_trees, sample_groups, sample_trees
from laboratory.policy import build_policy, to_probabilities
from laboratory.world import World
from laboratory.worlds import (
    WORLDS,
    build_distractors,
    build_key_door,
    build_late_decisive,
    build_long_key_door,
)


def uniform(world: World) -> np.ndarray:
    return np.full((world.num_states, 3, world.num_actions), 1 / world.num_actions)


def follow(world: World, actions: list[int], start: int = 0) -> int:
    """The state a deterministic world ends in."""
    state = world.starts[start]
    for action in actions:
        state = int(world.next_states[state, action, 0])
    return state


@pytest.mark.parametrize("name", list(WORLDS))
def test_every_world_is_hard_at_first_and_can_be_solved(name: str) -> None:
    world = WORLDS[name]()
    assert world.name == name
    assert 0.01 < compute_success(world, compute_values(world, uniform(world)[:, 1])) < 0.15
    assert compute_success(world, compute_values(world, None)) > 0.98
    assert len(set(world.keys)) == world.num_states
    assert ((world.progress >= 0) & (world.progress <= 1)).all()
    assert world.progress[world.success] == 1.0
    assert world.progress[world.failure] == 0.0


def test_the_door_needs_the_key() -> None:
    world = build_key_door(length=2)
    forward, back, pick = 0, 1, 2
    assert follow(world, [forward, pick, forward, forward]) == world.success
    assert follow(world, [forward, forward, forward]) == world.failure
    assert follow(world, [back, pick]) == world.starts[0]  # a wall behind, no key here
    # The third task stands past the key.
    assert follow(world, [forward], start=2) == world.failure
    assert follow(world, [back, pick, forward, forward], start=2) == world.success


def test_the_long_world_takes_more_than_thirty_turns_and_its_keys_decide() -> None:
    world = build_long_key_door()
    rng = np.random.default_rng(0)
    paths = sample_groups(world, uniform(world), 20, 8, rng)
    assert paths.taken.sum(axis=1).min() >= 31
    assert len(set(world.observations)) < world.num_states  # keys held are hidden
    tokens = to_probabilities(build_policy(world, success=0.5, rng=rng))
    values = compute_values(world, tokens[:, 1])
    size = np.abs(values.advantages[0 : world.max_turns]).max(axis=2)
    at_keys = [i for i, key in enumerate(world.keys) if key in ("(4, 0)", "(12, 1)", "(20, 2)")]
    assert size[4, at_keys[0]] > 5 * np.median(size[4, size[4] > 0])


def test_distractor_turns_have_exactly_no_advantage() -> None:
    world = build_distractors()
    tokens = to_probabilities(build_policy(world, success=0.5, rng=np.random.default_rng(0)))
    advantages = compute_values(world, tokens[:, 1]).advantages
    turns = np.array([int(key.split(",")[1]) for key in world.keys])
    for state, turn in enumerate(turns):
        largest = np.abs(advantages[turn, state]).max()
        if turn not in (3, 8):
            assert largest < 1e-12
    assert np.abs(advantages[3, turns == 3]).max() > 0.1


def test_the_late_turn_decides_by_task() -> None:
    world = build_late_decisive(num_turns=3)
    assert follow(world, [0, 1, 2], start=2) == world.success
    assert follow(world, [0, 1, 2], start=1) == world.failure
    assert follow(world, [0, 3]) == world.failure


@pytest.mark.parametrize("name", list(WORLDS))
def test_sampled_success_agrees_with_the_exact_one(name: str) -> None:
    world = WORLDS[name]()
    tokens = to_probabilities(build_policy(world, success=0.5, rng=np.random.default_rng(1)))
    paths = sample_groups(world, tokens, 250, 8, np.random.default_rng(2))
    # 2,000 attempts: four deviations of a mean are 4 * 0.5 / sqrt(2000) = 0.045; tasks are drawn, which adds a little.
    assert paths.outcomes.mean() == pytest.approx(0.5, abs=0.06)
    ends = np.where(paths.outcomes == 1, 1, 0) + paths.truncated
    assert set(ends.tolist()) <= {0, 1}  # never both solved and truncated


def check_structure(paths: Paths) -> None:
    """Every turn follows from the one before, in every row."""
    world = paths.world
    for states, after, tokens in zip(paths.states, paths.next_states, paths.tokens, strict=True):
        taken = np.flatnonzero(states >= 0)
        assert taken.tolist() == list(range(len(taken)))
        assert (states[taken[1:]] == after[taken[:-1]]).all()
        assert (world.next_states[states[taken], tokens[taken, 1]] == after[taken][:, None]).any(axis=1).all()


def test_groups_share_a_task() -> None:
    world = build_key_door()
    paths = sample_groups(world, uniform(world), 6, 4, np.random.default_rng(0))
    check_structure(paths)
    for group in range(6):
        assert len(set(paths.states[paths.groups == group, 0].tolist())) == 1
    assert paths.num_sampled_turns == paths.taken.sum()


def test_forks_share_what_came_before_and_nothing_after() -> None:
    world = build_key_door()
    rng = np.random.default_rng(0)
    trunks = sample_groups(world, uniform(world), 1, 2, rng)
    forked = fork_paths(trunks, uniform(world), np.array([0, 0]), np.array([3, 0]), rng)
    check_structure(forked)
    assert (forked.turn_ids[0, :3] == trunks.turn_ids[0, :3]).all()
    later = [
        set(row[row >= 0].tolist())
        for row in (forked.turn_ids[0, 3:], forked.turn_ids[1], trunks.turn_ids[0], trunks.turn_ids[1])
    ]
    assert not later[0] & later[1]
    assert not later[0] & later[2]
    assert not later[1] & later[3]


@pytest.mark.parametrize("sampler", [sample_trees, sample_entropy_trees])
def test_trees_fill_the_group_and_pay_for_shared_turns_once(sampler) -> None:  # type: ignore[no-untyped-def]
    world = build_key_door()
    paths = sampler(world, uniform(world), 3, 8, np.random.default_rng(0))
    check_structure(paths)
    assert np.bincount(paths.groups).tolist() == [8, 8, 8]
    assert paths.num_sampled_turns < paths.taken.sum()
    for tree in set(paths.trees.tolist()):
        members = paths.trees == tree
        assert len(set(paths.groups[members].tolist())) == 1
    # A shared id is the same turn wherever it occurs.
    rows, turns = np.nonzero(paths.taken)
    for number in np.unique(paths.turn_ids[rows, turns]):
        where = paths.turn_ids[rows, turns] == number
        assert (
            len(
                set(
                    zip(
                        turns[where], paths.states[rows, turns][where], paths.tokens[rows, turns, 1][where], strict=True
                    )
                )
            )
            == 1
        )
        assert len(set(paths.trees[rows[where]].tolist())) == 1
