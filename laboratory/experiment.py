"""The experiment of the laboratory: one arm in one world, over seeds, as plain data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laboratory.arms import GROUP_SIZE, NUM_GROUPS, Arm
from laboratory.exact import compute_success, compute_values
from laboratory.learning import Learning, choose_learning_rate, run_learning
from laboratory.measure import CreditQuality, compute_mean_interval, measure_arm
from laboratory.policy import TOKENS_PER_TURN
from laboratory.world import World

NUM_CURVE_POINTS = 81
TUNING_SEED = 1000
"""First of the seeds used for tuning; measured seeds count from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes of the measurements, the same for every arm."""

    num_seeds: int = 10
    qualities: tuple[float, ...] = (0.1, 0.5, 0.9)
    """Success probabilities of the fixed policies under which credit is measured."""
    num_warmups: int = 10
    """Batches a learning signal sees before it is measured."""
    num_batches: int = 10
    """Batches measured per seed and quality."""
    learning_rates: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
    """The grid; its first entry is the small step that is reported besides the tuned one."""
    num_tuning_seeds: int = 2
    budget_steps: int = 400
    """The token budget, as a number of batches of full-length trajectories."""

    def token_budget(self, world: World) -> int:
        """Maximum sampled tokens of a training run."""
        return self.budget_steps * NUM_GROUPS * GROUP_SIZE * world.max_turns * TOKENS_PER_TURN


QUICK = Settings(
    num_seeds=2,
    qualities=(0.5,),
    num_warmups=2,
    num_batches=3,
    learning_rates=(1.0, 4.0),
    num_tuning_seeds=1,
    budget_steps=20,
)
"""Settings for a trial run, whose numbers mean little."""


def describe_world(world: World, settings: Settings) -> dict[str, Any]:
    """Properties of a world for the tables."""
    uniform = np.full((world.num_states, world.num_actions), 1 / world.num_actions)
    return {
        "name": world.name,
        "summary": world.summary,
        "num_states": world.num_states,
        "num_actions": world.num_actions,
        "max_turns": world.max_turns,
        "success_at_start": compute_success(world, compute_values(world, uniform)),
        "best_success": compute_success(world, compute_values(world, None)),
        "token_budget": settings.token_budget(world),
    }


def run_arm(world: World, arm: Arm, settings: Settings) -> dict[str, Any]:
    """Credit quality at every policy quality, and learning with the small and with the tuned step."""
    budget = settings.token_budget(world)
    tuning = range(TUNING_SEED, TUNING_SEED + settings.num_tuning_seeds)
    rate = choose_learning_rate(world, arm, grid=settings.learning_rates, seeds=tuning, token_budget=budget)
    small = settings.learning_rates[0]
    learned = {
        used: [
            run_learning(world, arm, learning_rate=used, seed=seed, token_budget=budget)
            for seed in range(settings.num_seeds)
        ]
        for used in {small, rate}
    }
    return {
        "world": world.name,
        "arm": arm.name,
        "credit": arm.credit,
        "supplied": arm.supplied,
        "is_limit": arm.is_limit,
        "quality": {
            str(success): summarise_quality(
                [
                    measure_arm(
                        world,
                        arm,
                        success=success,
                        seed=seed,
                        num_batches=settings.num_batches,
                        num_warmups=settings.num_warmups,
                    )
                    for seed in range(settings.num_seeds)
                ]
            )
            for success in settings.qualities
        },
        "small_step": {"learning_rate": small, **summarise_learning(learned[small], budget)},
        "tuned_step": {"learning_rate": rate, **summarise_learning(learned[rate], budget)},
    }


def summarise_quality(measured: Sequence[CreditQuality]) -> dict[str, Any]:
    """Mean and 95% interval over the seeds where a figure exists (None where it exists in none); for noise and variance
    the median.

    A seed without noise figure (its gradient points the wrong way) counts as infinite; an infinite median is None."""
    summary: dict[str, Any] = {"tokens_per_batch": statistics.mean(one.tokens_per_batch for one in measured)}
    for name in ("correlation", "cosine", "bias_cosine"):
        defined = [value for one in measured if (value := getattr(one, name)) is not None]
        summary[name] = list(compute_mean_interval(defined)) if defined else None
    for name in ("noise", "variance"):
        numbers = [getattr(one, name) for one in measured]
        median = statistics.median(math.inf if value is None else value for value in numbers)
        summary[name] = median if math.isfinite(median) else None
    return summary


def summarise_learning(runs: Sequence[Learning], token_budget: int) -> dict[str, Any]:
    """Tokens and tasks to the target per seed (None: not within the budget), their geometric mean with its interval,
    and the mean curve.

    The geometric mean and its 95% interval (Student's t over logarithms) exist only where every seed reached the
    target. After a run has ended, its curve keeps the last success."""
    tokens = [run.tokens_to_target for run in runs]
    logs = [math.log(value) for value in tokens if value]
    points = np.geomspace(token_budget / 1000, token_budget, NUM_CURVE_POINTS)
    curves = [np.array(run.success)[np.searchsorted(run.num_tokens, points, side="right") - 1] for run in runs]
    return {
        "tokens": tokens,
        "tasks": [run.num_tasks if run.tokens_to_target else None for run in runs],
        "final_success": [run.success[-1] for run in runs],
        "num_reached": len(logs),
        "tokens_mean": [math.exp(value) for value in compute_mean_interval(logs)] if len(logs) == len(runs) else None,
        "tokens_median": statistics.median(value if value else math.inf for value in tokens)
        if 2 * len(logs) > len(runs)
        else None,
        "curve": {"tokens": points.tolist(), "success": np.mean(curves, axis=0).tolist()},
    }
