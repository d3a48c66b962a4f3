"""How much too high the best of several evaluations on the same tasks is: what choosing it adds to its score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.core.seeds import derive_seed

NUM_SPLITS = 400
"""Random halves that `estimate_optimism` averages over."""


def compute_optimism_of_equals(num_evaluations: int, num_tasks: int, success: float) -> float:
    """Return the expected success of the best of equal and independent evaluations, minus the true `success`.

    Exact: the mean of the largest of K binomial counts out of n is the sum over x of 1 - F(x)^K (David and Nagaraja,
    Order Statistics, 2003, section 3.1), divided by n. Raises ValueError for fewer than one evaluation or task, or a
    success outside [0, 1].
    """
    if num_evaluations < 1 or num_tasks < 1 or not 0 <= success <= 1:
        raise ValueError(f"{num_evaluations} evaluations of {num_tasks} tasks with success {success} are not possible")
    if success in (0, 1):
        return 0.0
    odds = math.log(success), math.log1p(-success)
    below, largest = 0.0, 0.0
    for count in range(num_tasks):
        ways = math.lgamma(num_tasks + 1) - math.lgamma(count + 1) - math.lgamma(num_tasks - count + 1)
        below += math.exp(ways + count * odds[0] + (num_tasks - count) * odds[1])
        largest += 1.0 - min(1.0, below) ** num_evaluations
    return largest / num_tasks - success


def estimate_optimism(evaluations: Sequence[Mapping[str, float]], *, seed: int = 0) -> float | None:
    """Estimate from the scores themselves how much choosing the best evaluation adds to its score.

    Each evaluation maps task ids to scores in [0, 1]; tasks that all of them have are used. In random halves of the
    tasks, the best evaluation on either half is scored on the other: the mean difference is the optimism of half as
    many tasks, whatever the evaluations share. Multiplied by sqrt(1/2) it is that of all tasks where no evaluation is
    truly better, and an upper estimate where one is, since all tasks then choose it more surely than half of them. Not
    below 0; among equal evaluations the later one is chosen. None for fewer than two evaluations or four tasks.
    """
    tasks = sorted(set.intersection(*(set(scores) for scores in evaluations))) if evaluations else []
    if len(evaluations) < 2 or len(tasks) < 4:
        return None
    table = np.array([[scores[task] for task in tasks] for scores in evaluations])
    random = np.random.default_rng(derive_seed(seed, "optimism"))
    gains, half = [], len(tasks) // 2
    for _ in range(NUM_SPLITS):
        order = random.permutation(len(tasks))
        means = [table[:, each].mean(axis=1) for each in (order[:half], order[half : 2 * half])]
        for choosing, scoring in (means, reversed(means)):
            best = len(choosing) - 1 - int(np.argmax(choosing[::-1]))
            gains.append(choosing[best] - scoring[best])
    return max(0.0, float(np.mean(gains)) * math.sqrt(0.5))
