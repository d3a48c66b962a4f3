"""The team that can be enumerated: values by hand, gradients by finite differences, credit by its expectation."""

from dataclasses import replace

import numpy as np
import pytest
from laboratory.team import (
    Team,
    TeamPolicy,
    build_team_policy,
    compute_team_values,
    compute_tell_gradient,
)
from laboratory.team_credit import (
    TEAM_ARMS,
    TeamArm,
    TeamEpisodes,
    compute_rewards,
    credit_role,
    estimate_tell_gradient,
    find_true_advantages,
    measure_team_arm,
    play_from,
    sample_team,
)

SMALL = Team(num_slots=1, num_values=2)
POLICY = TeamPolicy(
    ask=np.array([[1.0]]),
    tell=np.array([[[0.75, 0.25]], [[0.5, 0.5]]]),
    answer=np.array([[[0.8, 0.2], [0.4, 0.6], [0.5, 0.5]]]),
)


def test_values_by_hand() -> None:
    values = compute_team_values(SMALL, POLICY)
    # Fact 0 is answered right after message 0, 1, none with .8, .4, .5; fact 1 with .2, .6, .5.
    assert values.told[0] == pytest.approx(np.array([[0.8, 0.4, 0.5], [0.2, 0.6, 0.5]]))
    # .75 * .8 + .25 * .4 = .7; .5 * .2 + .5 * .6 = .4
    assert values.asked[0, :, 0] == pytest.approx([0.7, 0.4])
    assert values.of_tell[0, :, 0] == pytest.approx(np.array([[0.1, -0.3], [-0.2, 0.2]]))
    assert values.of_answer[0, 0, 0] == pytest.approx([0.2, -0.8])
    assert values.of_ask[0, :, 0] == pytest.approx([0.0, 0.0])
    # Half of the tasks each: .5 * .75 * .1, .5 * .25 * -.3, .5 * .5 * -+.2
    gradient = compute_tell_gradient(SMALL, POLICY, values)
    assert gradient[:, 0] == pytest.approx(np.array([[0.0375, -0.0375], [-0.05, 0.05]]))


def test_the_gradient_is_that_of_finite_differences() -> None:
    team = Team()
    policy = build_team_policy(team, success=0.6, rng=np.random.default_rng(0))
    exact = compute_tell_gradient(team, policy, compute_team_values(team, policy))
    step = 1e-5

    def success(logits: np.ndarray) -> float:
        tell = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        return float(compute_team_values(team, replace(policy, tell=tell)).start.mean())

    logits = np.log(policy.tell)
    for place in [(0, 0, 0), (4, 1, 2), (8, 0, 1)]:
        change = np.zeros_like(logits)
        change[place] = step
        slope = (success(logits + change) - success(logits - change)) / (2 * step)
        assert exact[place] == pytest.approx(slope, abs=1e-9)


@pytest.mark.parametrize("success", [0.4, 0.6, 0.9])
def test_a_policy_has_the_success_that_is_asked_for(success: float) -> None:
    team = Team()
    policy = build_team_policy(team, success=success, rng=np.random.default_rng(3))
    assert compute_team_values(team, policy).start.mean() == pytest.approx(success, abs=1e-3)
    rng = np.random.default_rng(4)
    sampled = np.mean([sample_team(team, policy, rng).rewards.mean() for _ in range(400)])
    assert sampled == pytest.approx(success, abs=0.04)


def test_a_success_out_of_reach_is_refused() -> None:
    with pytest.raises(ValueError, match=r"success 1\.1"):
        build_team_policy(Team(), success=1.1, rng=np.random.default_rng(0))


def repeat_episode(count: int, *, fact: int, tell: int) -> TeamEpisodes:
    """The same task and message, with B's answer drawn anew each time."""
    column = np.zeros(count, dtype=np.int64)
    blank = TeamEpisodes(
        question=column, facts=column + fact, ask=column, tell=column + tell, answer=column, rewards=np.zeros(count)
    )
    return play_from(SMALL, POLICY, blank, "answer", np.random.default_rng(fact * 2 + tell))


@pytest.mark.parametrize(
    ("reward", "resamples", "expected"),
    [
        # Q(fact, message), less nothing; less the value after no message (.5); less the mean over A's messages.
        ("shared", 0, [[0.8, 0.4], [0.2, 0.6]]),
        ("difference", 0, [[0.3, -0.1], [-0.3, 0.1]]),
        ("counterfactual", 1, [[0.1, -0.3], [-0.2, 0.2]]),
        ("counterfactual", 3, [[0.1, -0.3], [-0.2, 0.2]]),
        ("true value", 0, [[0.1, -0.3], [-0.2, 0.2]]),
    ],
)
def test_what_a_reward_is_on_average(reward: str, resamples: int, expected: list[list[float]]) -> None:
    arm = TeamArm(turn="tell", reward=reward, resamples=resamples)  # type: ignore[arg-type]
    values, rng = compute_team_values(SMALL, POLICY), np.random.default_rng(9)
    for fact in (0, 1):
        for tell in (0, 1):
            episodes = repeat_episode(20_000, fact=fact, tell=tell)
            rewards = compute_rewards(SMALL, POLICY, values, arm, episodes, rng)
            # Five standard errors of a number that varies by less than 1.
            assert np.mean(rewards) == pytest.approx(expected[fact][tell], abs=5 / np.sqrt(20_000))


def test_the_true_advantage_as_reward_gives_the_true_gradient() -> None:
    policy, rng = POLICY, np.random.default_rng(1)
    values = compute_team_values(SMALL, policy)
    gradients = []
    for _ in range(2000):
        episodes = sample_team(SMALL, policy, rng)
        gradients.append(estimate_tell_gradient(policy, episodes, find_true_advantages(values, "tell", episodes)))
    exact = compute_tell_gradient(SMALL, policy, values)
    assert np.mean(gradients, axis=0) == pytest.approx(exact, abs=5 * np.std(gradients, axis=0).max() / np.sqrt(2000))


def test_groups_are_those_of_one_task() -> None:
    rewards = [1.0] * 4 + [0.0] * 4 + [1.0] * 8
    assert credit_role("dr_grpo", rewards).tolist() == [0.5] * 4 + [-0.5] * 4 + [0.0] * 8
    assert credit_role("reinforce", rewards).tolist() == rewards


def test_replies_are_counted() -> None:
    # ask, tell, answer; one more answer; twice tell and answer; four times ask, tell and answer
    costs = {(arm.turn, arm.reward, arm.resamples): arm.replies for arm in TEAM_ARMS}
    assert costs["tell", "shared", 0] == 3
    assert costs["tell", "difference", 0] == 4
    assert costs["tell", "counterfactual", 2] == 7
    assert costs["ask", "counterfactual", 4] == 15
    assert costs["answer", "counterfactual", 4] == 7


def test_the_exact_value_correlates_best() -> None:
    arms = [arm for arm in TEAM_ARMS if arm.turn == "tell"]
    found = [measure_team_arm(Team(), arm, success=0.6, seed=0, num_batches=60).correlation or 0.0 for arm in arms]
    assert max(found) == found[[arm.reward for arm in arms].index("true value")]
