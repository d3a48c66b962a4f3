"""Tests at start that a reward distinguishes right from wrong, on the cases that it ships with."""

from __future__ import annotations

import math
from numbers import Real

from turnwise.core.errors import ConfigError, RewardError, boundary
from turnwise.core.offers import import_object
from turnwise.rewards.answers import REWARDS, AnswerCase, AnswerReward

MAX_FAILED = 0.5
"""Maximum reward of a case that must fail."""


def check_reward(reward: AnswerReward) -> None:
    """Run a reward on its own cases.

    Raises RewardError naming the case: it raised, returned no finite number, missed 1 where it must pass, or exceeded
    `MAX_FAILED` where it must fail. A reward without both kinds of cases is untested and raises too.
    """
    if not reward.must_pass or not reward.must_fail:
        raise RewardError(
            f"reward {reward.name!r} has no {'must_fail' if reward.must_pass else 'must_pass'} cases; add at least one"
        )
    for expected, cases in (("must_pass", reward.must_pass), ("must_fail", reward.must_fail)):
        for index, case in enumerate(cases):
            where = f"reward {reward.name!r}, {expected}[{index}] ({_describe(case)})"
            with boundary(RewardError, where):
                value = reward.compute(case)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                raise RewardError(f"{where} returned {value!r}; a reward must return a finite number")
            if expected == "must_pass" and not math.isclose(value, 1.0):
                raise RewardError(f"{where} returned {value}; it must return 1")
            if expected == "must_fail" and value > MAX_FAILED:
                raise RewardError(f"{where} returned {value}; it must return at most {MAX_FAILED}")


def _describe(case: AnswerCase) -> str:
    last = case.replies[-1].text if case.replies else "no reply"
    return f"reply {last!r}, gold {list(case.golds)!r}"


def load_reward(name: str) -> AnswerReward:
    """Load a built-in reward by name, or the `AnswerReward` at "package.module:NAME", checked on its own cases.

    Raises ConfigError when there is no such reward, RewardError when its cases fail.
    """
    reward: object = REWARDS.get(name)
    if reward is None:
        if ":" not in name:
            raise ConfigError(
                f"reward={name!r} is unknown; use {', '.join(REWARDS)} or an import path 'package.module:NAME'"
            )
        reward = import_object("reward", name)
    if not isinstance(reward, AnswerReward):
        raise ConfigError(f"reward={name!r} is a {type(reward).__name__}; it must be an AnswerReward")
    check_reward(reward)
    return reward
