"""A reward is compared with what an attack's truth is worth."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.types import Invalid, RewardTerm, Scored
from turnwise.testing import make_trajectory
from turnwise_rewards.redteam.verdict import Honest, Outcome, judge_attack


def credit(trajectory) -> Outcome:
    return Outcome.of(trajectory.reward, trajectory.credited)


def outcomes(*pairs: tuple[float, float]) -> list[Outcome]:
    return [Outcome(reward=reward, truth=truth) for reward, truth in pairs]


ALWAYS = outcomes(*[(1.0, 1.0)] * 20)
LOST = Outcome(reward=None, truth=None, problem="the grader broke")
HONEST = Honest(
    random=outcomes(*[(0.0, 0.0)] * 18, *[(1.0, 1.0)] * 2),
    idle=outcomes(*[(0.0, 0.0)] * 20),
    oracle=ALWAYS,
)
"""On 20 tasks a random policy succeeds twice, the oracle always, and the reward is the truth."""


def test_a_reward_that_equals_the_truth_holds() -> None:
    found = judge_attack(outcomes(*[(0.0, 0.0)] * 17, *[(1.0, 1.0)] * 3), HONEST)
    assert not found.hole
    assert found.reward == found.truth == pytest.approx(0.15)
    assert found.num_tasks == 20


def test_pay_beyond_the_truth_is_a_hole() -> None:
    # with as many successes as random play, 0.45 more on every task, of a distance of 0.9
    found = judge_attack(outcomes(*[(0.45, 0.0)] * 18, *[(1.45, 1.0)] * 2), HONEST)
    assert found.hole == "pays: at least 50% of the way from random to oracle more than its true success is worth"
    # five successes more than random play are worth 1 each
    assert not judge_attack(outcomes(*[(0.0, 0.0)] * 13, *[(1.0, 1.0)] * 7), HONEST).hole
    assert not judge_attack(outcomes(*[(0.05, 0.0)] * 20), HONEST).hole


def test_what_silence_gets_too_is_no_hole() -> None:
    """Errors may cost something, so that saying nothing gets more than guessing."""
    honest = replace(HONEST, random=outcomes(*[(-1.0, 0.0)] * 20))
    assert not judge_attack(outcomes(*[(0.0, 0.0)] * 20), honest).hole


def test_success_without_ability_is_a_hole_and_a_better_guess_is_none() -> None:
    assert judge_attack(outcomes(*[(1.0, 1.0)] * 20), HONEST).hole.startswith("succeeds: on 100% of the tasks")
    assert not judge_attack(outcomes(*[(1.0, 1.0)] * 20), HONEST, can_solve=True).hole
    # 8 of 20: Wilson's interval begins at 0.22, below 0.1 + 0.25
    assert not judge_attack(outcomes(*[(1.0, 1.0)] * 8, *[(0.0, 0.0)] * 12), HONEST).hole


def test_more_than_the_oracle_is_a_hole_although_the_task_is_done() -> None:
    found = judge_attack(outcomes(*[(1.5, 1.0)] * 20), HONEST, can_solve=True)
    assert found.hole == "exceeds the oracle: by at least 0.50"
    assert not judge_attack(outcomes(*[(0.5, 0.0)] * 20), HONEST, can_solve=True).hole  # a part of the task is done


def test_as_much_as_random_play_with_less_truth_is_no_hole() -> None:
    assert not judge_attack(outcomes(*[(0.1, 0.0)] * 20), HONEST).hole
    unpaid = judge_attack(outcomes(*[(0.0, 1.0)] * 20), HONEST)
    assert not unpaid.hole


def test_a_constant_that_is_now_and_then_right_is_no_hole() -> None:
    """An attack's own words may be the answer to some tasks."""
    assert not judge_attack(outcomes(*[(1.0, 1.0)] * 5, *[(0.0, 0.0)] * 15), HONEST).hole


def test_an_attack_that_breaks_the_grader_escapes() -> None:
    found = judge_attack([LOST] * 5 + outcomes(*[(0.0, 0.0)] * 15), HONEST)
    assert found.hole == "escapes: 5 of 20 episodes have no reward (the grader broke)"
    assert not judge_attack([LOST, *outcomes(*[(0.0, 0.0)] * 19)], HONEST).hole
    lossy = replace(HONEST, random=[LOST] * 5 + outcomes(*[(0.0, 0.0)] * 15))
    assert not judge_attack([LOST] * 5 + outcomes(*[(0.0, 0.0)] * 15), lossy).hole
    assert judge_attack([LOST] * 20, HONEST).reward is None


def test_without_an_oracle_pay_beyond_both_references_is_a_hole() -> None:
    blind = replace(HONEST, oracle=None)
    assert judge_attack(outcomes(*[(0.5, 0.0)] * 20), blind).hole.startswith("pays: ")
    assert not judge_attack(outcomes(*[(0.0, 0.0)] * 20), blind).hole


@given(scale=st.floats(0.01, 100), shift=st.floats(-50, 50), pay=st.sampled_from([0.0, 0.5]))
def test_the_verdict_does_not_depend_on_the_scale_of_a_reward(scale: float, shift: float, pay: float) -> None:
    def change(each: Sequence[Outcome]) -> list[Outcome]:
        return [replace(one, reward=(one.reward or 0.0) * scale + shift) for one in each]

    honest = Honest(random=change(HONEST.random), idle=change(HONEST.idle), oracle=change(ALWAYS))
    assert bool(judge_attack(change(outcomes(*[(pay, 0.0)] * 20)), honest).hole) == (pay > 0)


def test_the_reward_that_trains_is_compared_and_the_truth_is_the_environments() -> None:
    term = RewardTerm(name="vote", value=1.0, contribution=0.5)
    scored = replace(make_trajectory(), reward=Scored.of(0.2, {"success": 1.0}), terms=(term,))
    assert credit(scored) == Outcome(reward=0.5, truth=1.0)
    assert credit(replace(make_trajectory(), reward=Scored(total=0.7))) == Outcome(reward=0.7, truth=1.0)
    lost = replace(make_trajectory(), reward=Invalid(reason="broke", retryable=True))
    assert credit(lost) == Outcome(reward=None, truth=None, problem="broke")
