"""What RL with a reward model did: true success and the model's score at every step, from the stored groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.evaluation.intervals import compute_clustered_interval
from turnwise.evaluation.summary import is_success
from turnwise.runs.evaluate import load_run
from turnwise.store.groups import GroupStore


def read_runs(runs: Sequence[tuple[str, Path]]) -> list[dict[str, Any]]:
    """One row per run and its name: by step the share of right attempts with its interval, of right steps, and the mean
    score."""
    rows = []
    for name, path in runs:
        folder, config = load_run(path)
        store = GroupStore(folder.path)
        groups = [store.load(draw) for draw in store.list_draws()]
        size = config.rollout.tasks_per_step
        steps = [measure_step(groups[first : first + size]) for first in range(0, len(groups) - size + 1, size)]
        rows.append({"name": name, "seed": config.run.seed, "method": config.credit.method, "steps": steps})
    return rows


def measure_step(groups: Sequence[TrajectoryGroup]) -> dict[str, Any]:
    """True success, right processes and scores of one step's attempts."""
    right = [[float(is_success(t)) for t in group.trajectories] for group in groups]
    attempts = [t for group in groups for t in group.trajectories]
    processes = [t.reward.part("process") or 0.0 for t in attempts if isinstance(t.reward, Scored)]
    scores = [score for score in map(find_score, attempts) if score is not None]
    low, high = compute_clustered_interval(right)
    return {
        "success": sum(map(sum, right)) / len(attempts),
        "interval": [low, high],
        "process": sum(processes) / len(attempts),
        "score": sum(scores) / len(scores) if scores else None,
        "turns": sum(len(t.turns) for t in attempts) / len(attempts),
    }


def find_score(attempt: Trajectory) -> float | None:
    """The reward model's score of the whole attempt: a term of its reward, or that of its last turn; None without."""
    if attempt.terms:
        return attempt.terms[0].value
    return attempt.turns[-1].scores.process_score if attempt.turns else None
