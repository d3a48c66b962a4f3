"""Training a table policy with one credit method, and what it cost until the policy succeeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laboratory.arms import NUM_GROUPS, Arm
from laboratory.crediting import CreditRun
from laboratory.exact import compute_success, compute_values
from laboratory.measure import compute_batch_gradient
from laboratory.policy import DECIDING, TOKENS_PER_TURN, to_probabilities
from laboratory.world import FloatArray, World
from turnwise.core.seeds import derive_seed

TARGET = 0.9
NUM_HELD = 5
"""Steps in a row at which success must be at the target: one lucky step of a wild learning rate is not enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """One training run."""

    num_tokens: tuple[int, ...]
    """Tokens sampled before each step and at the end."""
    success: tuple[float, ...]
    """Exact success probability of the sampling policy at these points."""
    num_tasks: int
    """Number of tasks attempted (groups)."""

    @property
    def tokens_to_target(self) -> int | None:
        """Sampled tokens until success reached the target for `NUM_HELD` points in a row; None if the budget ended
        first."""
        return self.num_tokens[-NUM_HELD] if _is_held(self.success) else None


def run_learning(world: World, arm: Arm, *, learning_rate: float, seed: int, token_budget: int) -> Learning:
    """Train from the uniform policy until 90% success or until `token_budget` tokens are sampled.

    The step is `learning_rate * g / rms(|g|)`: gradient ascent, the gradient divided by the running root mean square of
    its norm (decay 0.9, corrected for its start), one number for all parameters. So a learning rate means the same for
    methods of any scale, and noise takes its share of the step as it does in a network whose parameters are shared.
    Batches without any gradient change nothing."""
    rng = np.random.default_rng(derive_seed(seed, "learning", world.name, arm.name))
    logits = np.zeros((world.num_states, TOKENS_PER_TURN, world.num_actions))
    tokens = to_probabilities(logits)
    run = CreditRun(world, arm, tokens, rng)
    sampled, tasks, square, steps = 0, 0, 0.0, 0
    num_tokens, success = [0], [_success(world, tokens)]
    while not _is_held(success) and sampled < token_budget:
        batch = run.sample(tokens, rng)
        sampled += batch.num_sampled_tokens
        tasks += NUM_GROUPS
        gradient = compute_batch_gradient(tokens, batch)
        norm = float(np.linalg.norm(gradient))
        if norm > 0:
            steps += 1
            square = 0.9 * square + 0.1 * norm**2
            logits = logits + learning_rate * gradient / math.sqrt(square / (1 - 0.9**steps))
            tokens = to_probabilities(logits)
        num_tokens.append(sampled)
        success.append(_success(world, tokens))
    return Learning(num_tokens=tuple(num_tokens), success=tuple(success), num_tasks=tasks)


def compute_cost(run: Learning, token_budget: int) -> float:
    """The quantity that tuning minimises: tokens to the target, or, if it was not reached, the budget plus a term for
    the distance from it."""
    reached = run.tokens_to_target
    return float(reached) if reached is not None else token_budget * (2 - run.success[-1])


def choose_learning_rate(
    world: World, arm: Arm, *, grid: Sequence[float], seeds: Sequence[int], token_budget: int
) -> float:
    """The rate in `grid` with the lowest mean `compute_cost` over `seeds` (none of which is measured afterwards)."""

    def mean_cost(rate: float) -> float:
        runs = [run_learning(world, arm, learning_rate=rate, seed=seed, token_budget=token_budget) for seed in seeds]
        return math.fsum(compute_cost(run, token_budget) for run in runs) / len(runs)

    return min(grid, key=mean_cost)


def _is_held(success: Sequence[float]) -> bool:
    return len(success) >= NUM_HELD and min(success[-NUM_HELD:]) >= TARGET


def _success(world: World, tokens: FloatArray) -> float:
    return compute_success(world, compute_values(world, tokens[:, DECIDING]))
