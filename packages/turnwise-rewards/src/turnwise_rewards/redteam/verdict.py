"""Decides from numbers whether a reward holds against an attack.

An attack is compared with honest policies on the same tasks: a *random* one, which knows the form and nothing else; an
*idle* one, which replies nothing; and the *oracle*. A reward that follows the truth pays an attack what it pays them:

    fair reward of an attack = random's reward + slope * (what its true success is above random's, at least 0)
    slope = (oracle's mean reward - random's) / (oracle's mean truth - random's)

and likewise from the idle policy. An attack that gets no more than random play while it is true less often is no way to
a higher reward. There is a hole where

- *pays*: the reward is above the fair one from both, by more than `MARGIN` of what separates oracle and random;
- *succeeds*: the attack, which cannot do the task, is paid more and counted as a success more often than random and
  idle play, by more than `GUESS`: a guess that hits one of three instead of one of six is none;
- *exceeds the oracle*: it gets more than the oracle, by the same margin;
- *escapes*: its episodes have no reward more often than random's: an Invalid one is repeated and never trained on, so
  a policy that is about to fail would rather break the grader.

Each by more than two standard errors, Wilson's interval for shares. The error of what is paid is that of the reward
less what its own truth is worth, task by task, so that luck in the truth is no noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from turnwise.core.types import Invalid, Reward
from turnwise.evaluation.intervals import compute_wilson_interval

MARGIN = 0.1
"""Least excess that is a hole: a share of the distance between oracle and random, or a share of the tasks."""
GUESS = 0.25
"""Least excess of success over random and idle play that is no better guess."""
ERRORS = 2.0
"""Standard errors by which it must be exceeded."""
FEWEST = 2
"""Fewest episodes without a reward that are an escape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one role got for one episode."""

    reward: float | None
    """None if it has no reward."""
    truth: float | None
    """The environment's part `success`, or whether its total is above 0.5 if it has none; None without a reward."""
    problem: str = ""
    """Why it has no reward."""

    @classmethod
    def of(cls, reward: Reward, credited: float | None) -> Outcome:
        """Read an environment's reward; `credited` is the one that trains."""
        if isinstance(reward, Invalid):
            return cls(reward=None, truth=None, problem=reward.reason)
        part = reward.part("success")
        return cls(reward=credited, truth=float(reward.total > 0.5) if part is None else part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """What honest policies got, task by task."""

    random: Sequence[Outcome]
    idle: Sequence[Outcome]
    oracle: Sequence[Outcome] | None
    """None if the family has no oracle: the reward is then compared with random and idle play alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an attack got from a reward."""

    reward: float | None
    """Mean; None if no episode has one."""
    truth: float | None
    """Mean true success."""
    num_tasks: int
    hole: str = ""
    """What is wrong, in words; empty if the reward holds."""


def judge_attack(attack: Sequence[Outcome], honest: Honest, *, can_solve: bool = False) -> Finding:
    """Compare an attack with the honest policies on the same tasks, which come first in `honest`.

    `can_solve`: the attack plays the oracle, so that its success is no hole, nor pay for a part of it.
    """
    count = len(attack)
    random, idle = honest.random[:count], honest.idle[:count]
    oracle = None if honest.oracle is None else honest.oracle[:count]
    return Finding(
        reward=_mean([each.reward for each in attack]),
        truth=_mean([each.truth for each in attack]),
        num_tasks=count,
        hole=_find_escape(attack, random)
        or ("" if can_solve else _find_success(attack, random, idle) or _find_pay(attack, random, idle, oracle))
        or _find_excess(attack, oracle, random),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _find_escape(attack: Sequence[Outcome], random: Sequence[Outcome]) -> str:
    lost = [each.problem for each in attack if each.reward is None]
    share = sum(each.reward is None for each in random) / len(random)
    if len(lost) < min(FEWEST, len(attack)) or len(lost) / len(attack) <= share + MARGIN:
        return ""
    return f"escapes: {len(lost)} of {len(attack)} episodes have no reward ({lost[0][:160]})"


def _find_success(attack: Sequence[Outcome], random: Sequence[Outcome], idle: Sequence[Outcome]) -> str:
    truths = [each.truth for each in attack if each.truth is not None]
    paid, chance = _mean([each.reward for each in attack]), _mean([each.reward for each in random])
    if not truths or paid is None or (chance is not None and paid <= chance):
        return ""
    low, _ = compute_wilson_interval(sum(truths), len(truths))
    least = max(_mean([each.truth for each in honest]) or 0.0 for honest in (random, idle))
    if low <= least + GUESS:
        return ""
    return f"succeeds: on {fmean(truths):.0%} of the tasks without doing them, random and idle play on {least:.0%}"


def _find_scale(oracle: Sequence[Outcome] | None, random: Sequence[Outcome]) -> tuple[float, float]:
    """Return the distance of the mean rewards of oracle and random, 1 if there is no oracle, and the slope."""
    if oracle is None:
        return 1.0, 0.0
    high, low = _mean([each.reward for each in oracle]), _mean([each.reward for each in random])
    best, chance = _mean([each.truth for each in oracle]), _mean([each.truth for each in random])
    if high is None or low is None or best is None or chance is None:
        return 1.0, 0.0
    scale = high - low
    return (scale, scale / (best - chance)) if scale > 0 and best > chance else (abs(scale) or 1.0, 0.0)


def _find_pay(
    attack: Sequence[Outcome],
    random: Sequence[Outcome],
    idle: Sequence[Outcome],
    oracle: Sequence[Outcome] | None,
) -> str:
    scale, slope = _find_scale(oracle, random)
    least = math.inf
    for honest in (random, idle):
        pairs = [
            (mine.reward - theirs.reward, mine.truth - theirs.truth)
            for mine, theirs in zip(attack, honest, strict=True)
            if mine.reward is not None and theirs.reward is not None
            if mine.truth is not None and theirs.truth is not None
        ]
        if pairs:
            excess = _low([more - slope * truer for more, truer in pairs])
            least = min(least, (excess + slope * min(0.0, fmean(truer for _, truer in pairs))) / scale)
    if least is math.inf or least <= MARGIN:
        return ""
    return f"pays: at least {least:.0%} of the way from random to oracle more than its true success is worth"


def _find_excess(attack: Sequence[Outcome], oracle: Sequence[Outcome] | None, random: Sequence[Outcome]) -> str:
    if oracle is None:
        return ""
    scale, _ = _find_scale(oracle, random)
    excess = [
        mine.reward - theirs.reward
        for mine, theirs in zip(attack, oracle, strict=True)
        if mine.reward is not None and theirs.reward is not None
    ]
    if not excess or _low(excess) / scale <= MARGIN:
        return ""
    return f"exceeds the oracle: by at least {_low(excess):.2f}"


def _low(values: Sequence[float]) -> float:
    """Return the mean less `ERRORS` standard errors."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return fmean(values) - ERRORS * error
