"""How much too high the best of several evaluations is, and how often an early end is wrong, where the truth is known.

    OMP_NUM_THREADS=1 python benchmarks/optimism.py [WORLDS]

Every world draws evaluations of policies whose true success is known, on tasks that all evaluations share. The first
table compares what choosing the best really adds to its score with the two numbers that a run prints; the second counts
how often training would end. Half a minute of processor time with 150 worlds, the default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.optimism import compute_optimism_of_equals, estimate_optimism
from turnwise.evaluation.stopping import count_without_progress

NUM_EVALUATIONS = 20
Draw = Callable[[np.random.Generator, int], np.ndarray]
"""Draws a world for a number of tasks: scores `[evaluations, tasks]` of 0 and 1."""


def draw_independent(truth: Sequence[float]) -> Draw:
    """Every attempt succeeds with the success of its evaluation."""
    return lambda random, tasks: (random.random((len(truth), tasks)) < np.array(truth)[:, None]).astype(float)


def draw_shared(truth: Sequence[float], share: float) -> Draw:
    """A task is decided for all evaluations together with probability `share`: hard and easy tasks, greedy policies
    that change little."""

    def draw(random: np.random.Generator, tasks: int) -> np.ndarray:
        own = random.random((len(truth), tasks))
        common = np.broadcast_to(random.random(tasks), own.shape)
        together = np.broadcast_to(random.random(tasks) < share, own.shape)
        return (np.where(together, common, own) < np.array(truth)[:, None]).astype(float)

    return draw


def measure(draw: Draw, truth: Sequence[float], *, tasks: int, worlds: int) -> tuple[float, float, float, float]:
    """What choosing adds in truth, the standard error of that, and what the split halves and the formula say."""
    real, halves, formula = [], [], []
    for seed in range(worlds):
        table = draw(np.random.default_rng([seed, tasks]), tasks)
        means = table.mean(axis=1)
        best = len(means) - 1 - int(np.argmax(means[::-1]))
        real.append(means[best] - truth[best])
        estimate = estimate_optimism([to_scores(row) for row in table], seed=seed)
        assert estimate is not None
        halves.append(estimate)
        formula.append(compute_optimism_of_equals(len(truth), tasks, float(means.mean())))
    error = float(np.std(real) / np.sqrt(worlds))
    return float(np.mean(real)), error, float(np.mean(halves)), float(np.mean(formula))


def to_scores(row: np.ndarray) -> dict[str, float]:
    """Scores of an evaluation by task."""
    return {str(task): float(score) for task, score in enumerate(row)}


def count_ends(draw: Draw, *, tasks: int, worlds: int, patience: int, on: Literal["decline", "plateau"]) -> int:
    """Number of worlds in which training ends at one of the evaluations."""
    ends = 0
    for seed in range(worlds):
        evaluations = [to_scores(row) for row in draw(np.random.default_rng([seed, tasks, 1]), tasks)]
        ends += any(
            count_without_progress(evaluations[: number + 1], on, num_planned=len(evaluations)) >= patience
            for number in range(len(evaluations))
        )
    return ends


def main() -> None:
    """Print both tables."""
    worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    flat = [0.5] * NUM_EVALUATIONS
    rising = [float(each) for each in np.linspace(0.3, 0.6, NUM_EVALUATIONS)]
    falling = [0.5] * 8 + [float(each) for each in np.linspace(0.5, 0.35, NUM_EVALUATIONS - 8)]
    better = [0.4] * (NUM_EVALUATIONS - 1) + [0.6]
    print(f"What choosing the best of {NUM_EVALUATIONS} evaluations adds, in points ({worlds} worlds)")
    print("| evaluations | tasks | in truth | split halves | equal and independent |\n|---|---|---|---|---|")
    rows: list[tuple[str, Draw, Sequence[float]]] = [
        ("all 50%, independent", draw_independent(flat), flat),
        ("all 50%, 60% of tasks decided together", draw_shared(flat, 0.6), flat),
        ("from 30% to 60%, independent", draw_independent(rising), rising),
        ("from 30% to 60%, 60% of tasks together", draw_shared(rising, 0.6), rising),
        ("40%, the last 60%, independent", draw_independent(better), better),
    ]
    for what, draw, truth in rows:
        for tasks in (100, 400):
            real, error, halves, formula = measure(draw, truth, tasks=tasks, worlds=worlds)
            cells = f"{100 * real:.2f} ± {196 * error:.2f} | {100 * halves:.2f} | {100 * formula:.2f}"
            print(f"| {what} | {tasks} | {cells} |", flush=True)
    print(f"\nRuns that end within {NUM_EVALUATIONS} evaluations of 200 tasks ({worlds} worlds)")
    print("| policy | patience | decline | plateau |\n|---|---|---|---|")
    policies: list[tuple[str, Draw]] = [
        ("all 50%, independent", draw_independent(flat)),
        ("all 50%, 60% of tasks decided together", draw_shared(flat, 0.6)),
        ("from 30% to 60%, independent", draw_independent(rising)),
        ("50%, then down to 35%, 60% of tasks together", draw_shared(falling, 0.6)),
    ]
    for what, draw in policies:
        for patience in (1, 3):
            ended = []
            kinds: tuple[Literal["decline", "plateau"], ...] = ("decline", "plateau")
            for on in kinds:
                ends = count_ends(draw, tasks=200, worlds=worlds, patience=patience, on=on)
                low, high = compute_wilson_interval(ends, worlds)
                ended.append(f"{100 * ends / worlds:.0f}% [{100 * low:.0f}, {100 * high:.0f}]")
            print(f"| {what} | {patience} | {' | '.join(ended)} |", flush=True)


if __name__ == "__main__":
    main()
