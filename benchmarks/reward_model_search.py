"""Labels and scores of steps in the search world, beside the share of many further continuations that succeed.

    python benchmarks/reward_model_search.py RUN [--step 0] [--tasks 40] [--train-tasks 150]

RUN is a run of search_r1/tiny. From every state that its policy reaches in attempts at `--tasks` tasks, 36
continuations are sampled: 4 make the labels, the other 32 estimate the success probability. Reward models of soft
labels and of outcomes are trained on attempts at other tasks. Correlations are with the estimate, whose own noise
lowers them; intervals are over tasks.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from turnwise.building.trainer import build_packing
from turnwise.core.paths import first_path
from turnwise.core.types import TrajectoryGroup
from turnwise.evaluation.summary import is_success
from turnwise.runs.build import System
from turnwise.runs.evaluate import load_trained_system
from turnwise_rewards.reward_models.calibration import correlate, measure_scores
from turnwise_rewards.reward_models.labels import LABELS, label_returns, list_continuations, share_right
from turnwise_rewards.reward_models.model import fit, score_turns, start_reward_model
from turnwise_rewards.runs.reward_models import TrainingPlan, find_kind, sample_groups

LABELLING, ESTIMATING = 4, 32
PLAN = TrainingPlan(labels="soft", attempts=4, continuations=LABELLING, steps=800, batch=24, lr=5e-3)


async def sample(system: System, tasks: int, train_tasks: int) -> list[TrajectoryGroup]:
    """Attempts at the tasks to compare, with all continuations, and then at those to train on, with few."""
    plan = TrainingPlan(labels="soft", tasks=tasks, attempts=2, continuations=LABELLING + ESTIMATING)
    try:
        compared = await sample_groups(system, plan)
        both = TrainingPlan(labels="soft", tasks=tasks + train_tasks, attempts=PLAN.attempts, continuations=LABELLING)
        return [*compared, *(await sample_groups(system, both))[tasks:]]
    finally:
        await system.close()


def list_columns(groups: Sequence[TrajectoryGroup]) -> dict[str, list[list[float]]]:
    """Per task, the values of every turn but the last: the estimate and the label of each method."""
    returned = {each.trajectory.id: each.labels for each in label_returns(groups)}
    columns: dict[str, list[list[float]]] = {name: [] for name in ("estimate", "soft", "hard", "outcome", "returns")}
    for group in groups:
        for column in columns.values():
            column.append([])
        for attempt in group.trajectories:
            right = float(is_success(first_path(attempt)))
            for turn, ends in enumerate(list_continuations(attempt)[1:]):
                row = {
                    "estimate": share_right(ends[LABELLING:], hard=False),
                    "soft": share_right(ends[:LABELLING], hard=False),
                    "hard": share_right(ends[:LABELLING], hard=True),
                    "outcome": right,
                    "returns": returned[attempt.id][turn],
                }
                if None not in row.values():
                    for name, value in row.items():
                        columns[name][-1].append(float(value or 0.0))
    return columns


def compare_labels(columns: Mapping[str, list[list[float]]]) -> None:
    """Print bias with its interval over tasks, and correlation, of every method."""
    estimate = columns["estimate"]
    true = np.concatenate([np.array(values) for values in estimate])
    print(f"{len(true)} states, mean estimate {true.mean():.3f}")
    for name, column in columns.items():
        if name == "estimate":
            continue
        errors = [np.mean(np.subtract(a, b)) for a, b in zip(column, estimate, strict=True) if a]
        half = 1.96 * float(np.std(errors, ddof=1)) / len(errors) ** 0.5
        r = correlate(np.concatenate([np.array(values) for values in column]), true)
        print(f"labels {name:8} bias {np.mean(errors):+.3f} ± {half:.3f}  r {'-' if r is None else f'{r:.2f}'}")


def compare_models(system: System, compared: Sequence[TrajectoryGroup], train: Sequence[TrajectoryGroup]) -> None:
    """Train a model of either kind, and print its scores of states beside the estimate."""
    attempts = [t for group in compared for t in group.trajectories]
    truth = [[share_right(ends[LABELLING:], hard=False) for ends in list_continuations(t)[1:]] for t in attempts]
    for name in ("soft", "outcome"):
        packing = build_packing(system.config)
        model = start_reward_model(system.model, system.tokenizer, kind=find_kind(name), lr=PLAN.lr, packing=packing)
        labelled = [each for each in LABELS[name](train) if each.num_labels]
        seed = system.config.run.seed
        fit(model, labelled, steps=PLAN.steps, batch_size=PLAN.batch, seed=seed, report=lambda *_: None)
        scores = score_turns(model, [first_path(t) for t in attempts])
        pairs = [
            (score, true)
            for row, trues in zip(scores, truth, strict=True)
            for score, true in zip(row, trues, strict=False)
            if true is not None
        ]
        measured = measure_scores(*map(list, zip(*pairs, strict=True))).to_json()
        print(f"model {name:8} " + "  ".join(f"{key} {value}" for key, value in measured.items() if key != "bins"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--step", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--train-tasks", type=int, default=150)
    options = parser.parse_args()
    _, system, _ = load_trained_system(options.run, options.step)
    groups = asyncio.run(sample(system, options.tasks, options.train_tasks))
    compare_labels(list_columns(groups[: options.tasks]))
    compare_models(system, groups[: options.tasks], groups[options.tasks :])


if __name__ == "__main__":
    main()
