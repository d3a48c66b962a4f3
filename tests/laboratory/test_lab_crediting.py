"""Arms: every method has one and accepts its inputs; signals measure what they claim; figures mean what they say."""

import math

import numpy as np
import pytest
from laboratory.arms import ARMS, NUM_GROUPS
from laboratory.crediting import Credited, CreditRun, credit_paths
from laboratory.exact import compute_values
from laboratory.measure import (
    compute_mean_interval,
    compute_turn_correlation,
    correlate,
    measure_arm,
)
from laboratory.paths import sample_groups
from laboratory.policy import (
    build_policy,
    compute_true_gradient,
    estimate_gradient,
    to_probabilities,
)
from laboratory.signals import Critic, ForkedValues, ProgressRegression
from laboratory.world import World
from laboratory.worlds import (
    build_distractors,
    build_key_door,
    build_late_decisive,
    build_stochastic_tools,
)

from turnwise.algorithms.credit_table import CREDIT_METHODS, build_credit


def half(world: World, seed: int = 0) -> np.ndarray:
    """Token probabilities of a policy that succeeds half of the time."""
    return to_probabilities(build_policy(world, success=0.5, rng=np.random.default_rng(seed)))


def test_every_credit_method_has_an_arm() -> None:
    # No world here has a proposer, and without proposals `learning_progress` is GRPO (its own tests hold that).
    assert {arm.credit for arm in ARMS.values()} == set(CREDIT_METHODS) - {"learning_progress"}


@pytest.mark.parametrize("name", list(ARMS))
def test_every_arm_passes_the_checks_of_its_method(name: str) -> None:
    world, arm = build_key_door(), ARMS[name]
    tokens, rng = half(world), np.random.default_rng(1)
    run = CreditRun(world, arm, tokens, rng)
    run.function = build_credit(
        arm.credit, arm.options
    )  # the checked function: raises where something needed is missing
    for _ in range(2):
        batch = run.sample(tokens, rng)
        assert batch.advantages.shape == (batch.paths.taken.sum(), 3)
        assert len(batch.paths.states) == NUM_GROUPS * arm.group_size
        assert batch.num_sampled_tokens >= 3 * batch.paths.num_sampled_turns


def test_exact_values_give_the_truth_where_nothing_is_left_to_chance() -> None:
    quality = measure_arm(
        build_key_door(), ARMS["vine, exact values"], success=0.5, seed=0, num_batches=4, num_warmups=0
    )
    assert quality.correlation == pytest.approx(1.0, abs=1e-9)
    # A failing tool moves the value without any choice: even exact values see luck.
    stochastic = measure_arm(
        build_stochastic_tools(), ARMS["vine, exact values"], success=0.5, seed=0, num_batches=4, num_warmups=0
    )
    assert stochastic.correlation is not None
    assert 0.5 < stochastic.correlation < 0.95


def test_trajectory_level_credit_cannot_tell_turns_apart_and_state_values_can() -> None:
    world = build_distractors()
    correlations = {
        name: measure_arm(world, ARMS[name], success=0.5, seed=0, num_batches=8, num_warmups=4).correlation
        for name in ("grpo", "vine", "vine, exact values")
    }
    assert correlations["grpo"] is not None
    assert correlations["vine"] is not None
    assert correlations["grpo"] < 0.4 < correlations["vine"] < 0.8
    assert correlations["vine, exact values"] == pytest.approx(1.0, abs=1e-9)


def test_true_advantages_give_the_true_gradient() -> None:
    world = build_late_decisive(num_turns=3)
    tokens = half(world)
    values = compute_values(world, tokens[:, 1])
    paths = sample_groups(world, tokens, 2500, 8, np.random.default_rng(3))
    rows, turns = np.nonzero(paths.taken)
    states, sampled = paths.states[rows, turns], paths.tokens[rows, turns]
    advantages = np.zeros(sampled.shape)
    advantages[:, 1] = values.advantages[turns, states, sampled[:, 1]]
    estimate = estimate_gradient(tokens, states, sampled, advantages, len(paths.states))
    # 20,000 trajectories: a deviation of an entry is below 0.5 / sqrt(20000) = 0.0035; tasks are drawn 2,500 times
    # only.
    assert np.abs(estimate - compute_true_gradient(world, tokens, values)).max() < 0.015
    assert np.abs(compute_true_gradient(world, tokens, values)).max() > 0.03


def test_group_baselines_leave_no_bias_in_the_gradient() -> None:
    quality = measure_arm(build_stochastic_tools(), ARMS["rloo"], success=0.5, seed=1, num_batches=300, num_warmups=0)
    assert quality.bias_cosine is not None
    assert quality.cosine is not None
    assert quality.bias_cosine > 0.97 > quality.cosine


def test_copies_of_a_shared_turn_count_once() -> None:
    world = build_key_door()
    tokens, rng = half(world), np.random.default_rng(5)
    batch = CreditRun(world, ARMS["tree"], tokens, rng).sample(tokens, rng)
    values = compute_values(world, tokens[:, 1])
    rows, turns = np.nonzero(batch.paths.taken)
    ids = batch.paths.turn_ids[rows, turns]
    sums = [batch.advantages[ids == number, 1].sum() for number in np.unique(ids)]
    places = [(rows[ids == number][0], turns[ids == number][0]) for number in np.unique(ids)]
    true = [
        values.advantages[turn, batch.paths.states[row, turn], batch.paths.tokens[row, turn, 1]] for row, turn in places
    ]
    expected = correlate(np.array(sums), np.array(true))
    assert compute_turn_correlation([batch], values) == pytest.approx(expected)
    assert len(sums) < len(ids)


def test_forked_values_are_means_of_their_forks_and_are_paid_for() -> None:
    world = build_key_door()
    tokens, rng = half(world), np.random.default_rng(0)
    paths = sample_groups(world, tokens, 30, 8, rng)
    measured = ForkedValues(world, tokens, rng).measure(paths, tokens, rng)
    estimates = measured.fields["state_value"][paths.taken]
    assert set((estimates * ForkedValues.NUM_FORKS).tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    rows, turns = np.nonzero(paths.taken)
    true = compute_values(world, tokens[:, 1]).states[turns, paths.states[rows, turns]]
    # Over 1,000 states with 4 forks each: a deviation of the mean is at most 0.5 / sqrt(4000) = 0.008.
    assert estimates.mean() == pytest.approx(true.mean(), abs=0.03)
    assert measured.num_turns > 4 * paths.num_sampled_turns


def test_the_critic_learns_values_of_states_and_actions() -> None:
    world = build_late_decisive(num_turns=2, num_tasks=1)
    tokens, rng = half(world), np.random.default_rng(0)
    critic = Critic(world, tokens, rng)
    for _ in range(40):
        critic.learn(sample_groups(world, tokens, 8, 8, rng))
    values = compute_values(world, tokens[:, 1])
    assert critic.values[:2] == pytest.approx([values.states[0, 0], values.states[1, 1]], abs=0.06)
    assert critic.values[2 + 4 : 2 + 8] == pytest.approx(
        values.actions[1, 1], abs=1e-9
    )  # the last action is deterministic


def test_the_progress_regression_splits_the_outcome() -> None:
    world = build_late_decisive(num_turns=2, num_tasks=1)
    tokens, rng = half(world), np.random.default_rng(0)
    model = ProgressRegression(world, tokens, rng)
    for _ in range(30):
        model.learn(sample_groups(world, tokens, 8, 8, rng))
    paths = sample_groups(world, tokens, 8, 8, rng)
    progress = np.where(paths.taken, model.measure(paths, tokens, rng).fields["progress"], 0.0)
    assert np.abs(progress.sum(axis=1) - paths.outcomes).max() < 0.05


def test_credit_reaches_the_turns_in_order() -> None:
    world = build_key_door()
    tokens, rng = half(world), np.random.default_rng(2)
    run = CreditRun(world, ARMS["dr_grpo"], tokens, rng)
    paths = sample_groups(world, tokens, 2, 4, rng)
    advantages = credit_paths(run.function, paths, run.signal.measure(paths, tokens, rng), run.turns)
    rows = np.nonzero(paths.taken)[0]
    means = np.repeat([paths.outcomes[:4].mean(), paths.outcomes[4:].mean()], 4)
    assert advantages == pytest.approx(np.repeat((paths.outcomes - means)[rows][:, None], 3, axis=1))


def test_no_signal_has_no_correlation() -> None:
    world = build_key_door()
    tokens = half(world)
    paths = sample_groups(world, tokens, 1, 4, np.random.default_rng(0))
    silent = Credited(paths=paths, advantages=np.zeros((int(paths.taken.sum()), 3)), num_sampled_tokens=0)
    assert compute_turn_correlation([silent], compute_values(world, tokens[:, 1])) is None


def test_mean_interval_by_hand() -> None:
    # 1, 2, 3: mean 2, deviation 1, t(2) = 4.303, half width 4.303 / sqrt(3) = 2.4843.
    assert compute_mean_interval([1.0, 2.0, 3.0]) == pytest.approx(
        (2.0, 2.0 - 4.303 / math.sqrt(3), 2.0 + 4.303 / math.sqrt(3))
    )
    assert compute_mean_interval([0.5]) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="no values"):
        compute_mean_interval([])
