"""A reward that misbehaves is Invalid, never 0; a reward that cannot tell right from wrong does not start."""

import asyncio
import dataclasses
import math
import threading

import numpy as np
import pytest

from turnwise.core.errors import ConfigError, RewardError
from turnwise.core.types import Invalid, RewardPart, Scored
from turnwise.rewards.answers import REWARDS
from turnwise.rewards.guard import score_guarded
from turnwise.rewards.selfcheck import check_reward, load_reward


def score(fn, timeout_s=5.0):
    return asyncio.run(score_guarded(fn, timeout_s))


def test_numbers_and_scored_pass():
    assert score(lambda: 0.5) == Scored(total=0.5)
    assert score(lambda: np.float32(0.5)) == Scored(total=0.5)
    judged = Scored(total=1.0, parts=(RewardPart(name="f1", value=0.5),))
    assert score(lambda: judged) == judged
    refused = Invalid(reason="no judge", retryable=False)
    assert score(lambda: refused) == refused


def test_an_async_reward_is_awaited():
    async def judge():
        return 0.25

    assert score(judge) == Scored(total=0.25)
    assert score(lambda: judge()) == Scored(total=0.25)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1", Scored(total=math.nan)])
def test_not_a_finite_number_is_invalid_for_good(value):
    result = score(lambda: value)
    assert isinstance(result, Invalid)
    assert not result.retryable


def test_a_part_that_is_not_finite_is_named():
    result = score(lambda: Scored(total=1.0, parts=(RewardPart(name="f1", value=math.nan),)))
    assert isinstance(result, Invalid)
    assert "f1" in result.reason


@pytest.mark.parametrize("error", [ValueError("boom"), TimeoutError("boom"), StopIteration("boom")])
def test_a_reward_that_raises_is_invalid_and_says_why(error):
    def judge():
        raise error

    result = score(judge)
    assert isinstance(result, Invalid)
    assert result.retryable
    assert "boom" in result.reason


def test_a_reward_that_hangs_is_invalid_after_its_deadline():
    release = threading.Event()
    result = score(release.wait, timeout_s=0.05)
    release.set()
    assert result == Invalid(reason="the reward took longer than 0.05 s", retryable=True)

    async def judge():
        await asyncio.sleep(60)
        return 1.0

    assert score(judge, timeout_s=0.05) == Invalid(reason="the reward took longer than 0.05 s", retryable=True)


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_built_in_rewards_pass_their_own_cases(name):
    assert load_reward(name) is REWARDS[name]


@pytest.mark.parametrize(
    ("compute", "part"),
    [
        (lambda case: 1.0, "must_fail[0]"),
        (lambda case: 0.0, "must_pass[0]"),
        (lambda case: math.nan, "must_pass[0]"),
        (lambda case: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_broken_reward_is_refused_with_its_case(compute, part):
    with pytest.raises(RewardError) as raised:
        check_reward(dataclasses.replace(REWARDS["exact_match"], compute=compute))
    assert part in str(raised.value)


def test_a_reward_without_cases_is_refused():
    with pytest.raises(RewardError, match="must_fail"):
        check_reward(dataclasses.replace(REWARDS["f1"], must_fail=()))


def test_load_reward_by_import_path_and_its_errors():
    with pytest.raises(ConfigError, match="exact_match"):
        load_reward("exact")
    with pytest.raises(ConfigError, match="cannot be imported"):
        load_reward("no_such_module:REWARD")
    with pytest.raises(ConfigError, match="must be an AnswerReward"):
        load_reward("math:pi")
