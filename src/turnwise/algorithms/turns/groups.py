"""Shared by the turn-level methods: converts the turns of a group to lists of numbers, computes returns along turns,
and converts back to tokens.

Turns are taken in the order of the list, which is the order in time; `CreditTurn.parent` is not read. Members without
an outcome (None) are left out of every statistic and get None. A member without turns has an outcome but nothing to
train: it gets an empty list. A turn without sampled tokens counts like any other and gets an empty array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import get_args

import numpy as np

from turnwise.algorithms.advantages.grpo import Deviation, compute_grpo_advantages
from turnwise.algorithms.credit import CreditFunction, CreditTrajectory, TokenAdvantages, group_indices
from turnwise.algorithms.options import check_choice, check_range

TurnAdvantages = list[list[float]]
"""One number per turn, for every scored member of a group."""

GroupCredit = Callable[[list[CreditTrajectory], list[float]], TurnAdvantages]
"""Maps the scored members of one group and their outcomes to one number per turn of each."""


def build_group_credit(compute: GroupCredit) -> CreditFunction:
    """Build a credit function that runs `credit_by_group` with `compute`."""

    def credit(trajectories: Sequence[CreditTrajectory]) -> list[TokenAdvantages | None]:
        return credit_by_group(trajectories, compute)

    return credit


def credit_by_group(trajectories: Sequence[CreditTrajectory], compute: GroupCredit) -> list[TokenAdvantages | None]:
    """Run `compute(members, outcomes)` on the scored members of every group and assign each turn's number to its
    tokens.

    Groups are found by key; a group without scored members is never passed to `compute`.
    """
    credited: list[TokenAdvantages | None] = [None] * len(trajectories)
    for indices in group_indices([trajectory.group for trajectory in trajectories]):
        scored, members, outcomes = [], [], []
        for index in indices:
            reward = trajectories[index].reward
            if reward is not None:
                scored.append(index)
                members.append(trajectories[index])
                outcomes.append(reward)
        if members:
            for index, values in zip(scored, compute(members, outcomes), strict=True):
                credited[index] = spread_over_tokens(trajectories[index], values)
    return credited


def spread_over_tokens(trajectory: CreditTrajectory, values: Sequence[float]) -> TokenAdvantages:
    """Assign one number per turn to every sampled token of that turn."""
    return [
        np.full(turn.num_tokens, value, dtype=np.float64) for turn, value in zip(trajectory.turns, values, strict=True)
    ]


def turn_rewards(trajectory: CreditTrajectory) -> list[float]:
    """Return the rewards at the end of each turn, without the outcome."""
    return [turn.reward for turn in trajectory.turns]


def add_outcome(rewards: Sequence[float], outcome: float) -> list[float]:
    """Return turn rewards with the outcome added at the last turn; no turns give an empty list."""
    return [*rewards[:-1], rewards[-1] + outcome] if rewards else []


def require_turn_values(values: Iterable[float | None], name: str) -> list[float]:
    """Return the values as floats. Raises ValueError naming the field and the turn when one is None."""
    floats = []
    for index, value in enumerate(values):
        if value is None:
            raise ValueError(
                f"turn {index} has no {name}; measure it on every turn, or choose a method that does not need it"
            )
        floats.append(value)
    return floats


def check_finite(values: Iterable[float], name: str) -> None:
    """Raise ValueError naming the first value that is NaN or infinite."""
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise ValueError(
                f"{name} {index} is {value}, not finite; set the reward of an unscorable trajectory to None"
            )


def check_comparison(*, deviation: Deviation, epsilon: float, gamma: float = 1.0) -> None:
    """Raise ValueError, before any batch, for an unknown deviation, a negative epsilon or a gamma outside [0, 1]."""
    check_choice("deviation", deviation, get_args(Deviation))
    check_range("epsilon", epsilon, 0)
    check_range("gamma", gamma, 0, 1)


def compute_returns(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """`G_k = sum_{l >= k} gamma^(l-k) r_l` over turns; gamma counts turns, not tokens.

    Raises ValueError: gamma outside [0, 1].
    """
    check_range("gamma", gamma, 0, 1)
    returns: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]


def normalize_by_turn_index(
    values: Sequence[Sequence[float]], *, deviation: Deviation, epsilon: float
) -> TurnAdvantages:
    """Normalise turn k of every member against turn k of the members that reached it.

    A member alone at an index, and members with constant values there, get exactly 0.
    """
    normalised: TurnAdvantages = [[] for _ in values]
    for k in range(max((len(row) for row in values), default=0)):
        column = compute_grpo_advantages(
            [row[k] if k < len(row) else None for row in values], deviation=deviation, epsilon=epsilon
        )
        for row, value in zip(normalised, column, strict=True):
            if value is not None:
                row.append(value)
    return normalised


def normalize_pooled(values: Sequence[Sequence[float]], *, deviation: Deviation, epsilon: float) -> TurnAdvantages:
    """Normalise every turn of every member against all turns of all members, each turn counting once.

    If fewer than two members have turns, there is nothing to compare and they get exactly 0, as does a pool of equal
    values.
    """
    if sum(1 for row in values if row) < 2:
        return [[0.0] * len(row) for row in values]
    pool = iter(
        compute_grpo_advantages([value for row in values for value in row], deviation=deviation, epsilon=epsilon)
    )
    return [[next(pool) or 0.0 for _ in row] for row in values]
