"""Convert sampled paths to the input of a credit method, and its output back to one number per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laboratory.arms import NUM_GROUPS, Arm
from laboratory.paths import Paths
from laboratory.policy import TOKENS_PER_TURN
from laboratory.signals import Measured, Signal
from laboratory.world import FloatArray, World
from turnwise.algorithms.credit import CreditFunction, CreditTrajectory, CreditTurn
from turnwise.algorithms.credit_table import build_credit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Credited:
    """A batch with its advantages."""

    paths: Paths
    advantages: FloatArray
    """`[M, 3]`, one row per turn of every trajectory, in the order of `paths.states[paths.taken]`."""
    num_sampled_tokens: int
    """All tokens sampled for it, including forks and greedy attempts."""


class CreditRun:
    """One arm in one world: its credit function and its signal, both of which may keep state."""

    def __init__(self, world: World, arm: Arm, tokens: FloatArray, rng: np.random.Generator) -> None:
        """`tokens`, `[S, 3, A]`: probabilities of the policy the run starts from."""
        self.world, self.arm = world, arm
        self.signal: Signal = arm.signal(world, tokens, rng)
        # The checks around the function cost more than the function at this size; tests run the same batches through
        # them.
        self.function: CreditFunction = build_credit(arm.credit, arm.options).function
        keys = world.keys if arm.anchors == "state" else world.observations
        self.turns = [CreditTurn(num_tokens=TOKENS_PER_TURN, state=key) for key in keys]

    def sample(self, tokens: FloatArray, rng: np.random.Generator) -> Credited:
        """Sample a batch with `tokens`, credit it, then let the signal learn from it."""
        paths = self.arm.sampler(self.world, tokens, NUM_GROUPS, self.arm.group_size, rng)
        measured = self.signal.measure(paths, tokens, rng)
        advantages = credit_paths(self.function, paths, measured, self.turns)
        self.signal.learn(paths)
        num_turns = paths.num_sampled_turns + measured.num_turns
        return Credited(paths=paths, advantages=advantages, num_sampled_tokens=TOKENS_PER_TURN * num_turns)


def credit_paths(function: CreditFunction, paths: Paths, measured: Measured, turns: Sequence[CreditTurn]) -> FloatArray:
    """Advantages `[M, 3]` of every turn of `paths`."""
    credited = function(to_trajectories(paths, measured, turns))
    rows = [row for trajectory in credited for row in trajectory or []]
    return np.concatenate(rows).reshape(-1, TOKENS_PER_TURN)


def to_trajectories(paths: Paths, measured: Measured, turns: Sequence[CreditTurn]) -> list[CreditTrajectory]:
    """The method's input; `turns` has one bare turn per state, to which the measured fields are added."""
    outcomes, truncated = paths.outcomes.tolist(), paths.truncated.tolist()
    states, taken = paths.states, paths.taken
    trajectories = []
    for index, (group, tree) in enumerate(zip(paths.groups.tolist(), paths.trees.tolist(), strict=True)):
        places = np.flatnonzero(taken[index])
        bare = [turns[state] for state in states[index, places].tolist()]
        if measured.fields:
            columns = {name: _plain(array[index, places]) for name, array in measured.fields.items()}
            rows = zip(*columns.values(), strict=True)
            bare = [
                CreditTurn(num_tokens=turn.num_tokens, state=turn.state, **dict(zip(columns, row, strict=True)))
                for turn, row in zip(bare, rows, strict=True)
            ]
        priors = measured.prior_answer_probabilities
        trajectories.append(
            CreditTrajectory(
                group=str(group),
                reward=outcomes[index],
                turns=tuple(bare),
                parts={"outcome": outcomes[index]},
                answer_prior=None if priors is None else float(priors[index]),
                greedy_reward=None if measured.greedy_rewards is None else float(measured.greedy_rewards[index]),
                role="agent",
                tree=str(tree),
                truncated=truncated[index],
            )
        )
    return trajectories


def _plain(column: FloatArray) -> list[object]:
    """One entry per turn: a float (None for NaN), or the array of its tokens."""
    if column.ndim == 2:
        return list(column)
    return [None if value != value else value for value in column.tolist()]
