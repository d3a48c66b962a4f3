"""Print the result tables of the repair recipes: several seeds, their controls, and a run that is rewarded for green
tests that it may edit; writes docs/results.md's tables.

    python benchmarks/repair.py [a.b=value ...] [--recipe repair/small] [--seeds 0 1 2] [--workdir]
        [--output runs/benchmark]
    python benchmarks/repair.py --read RUN [RUN ...]

Trains `repair/tiny`, or the recipe given, once per seed, with `--workdir` also with
`environment.args.tests_graded="workdir"` and a demonstrator that overwrites a test now and then. `--read` prints the
tables of finished runs. Every number comes from the evaluations in the run folders, which are kept."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.config.load import load_config
from turnwise.core.types import Scored, Trajectory, TrajectoryGroup
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.reporting.summaries import is_control, load_summaries
from turnwise.runs.train import run_train
from turnwise.store.trajectories import load_groups
from turnwise_worlds.repair.bugs import KINDS

RECIPE = Path("repair/tiny")
WORKDIR = ("environment.args.tests_graded=workdir", "environment.args.naive_cheat=0.3", "run.name=repair_workdir")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The episodes of one evaluation."""

    label: str
    groups: Sequence[TrajectoryGroup]

    def rewards(self, kind: str | None = None, *, raises: bool | None = None) -> list[Scored]:
        """Rewards of the tasks with that kind of bug (None: all) whose bug raises, or does not (None: all)."""
        return [
            trajectory.reward
            for group in self.groups
            for trajectory in group.trajectories
            if isinstance(trajectory.reward, Scored)
            and kind in (None, group.task.payload["kind"])
            and raises in (None, group.task.payload["bug"]["raises"])
        ]

    def trajectories(self) -> list[Trajectory]:
        """All trajectories of the evaluation."""
        return [trajectory for group in self.groups for trajectory in group.trajectories]


def main() -> None:
    """Train, or read, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", default="runs/benchmark")
    parser.add_argument("--workdir", action="store_true")
    parser.add_argument("--read", type=Path, nargs="+", default=[])
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    runs: list[Path] = list(arguments.read)
    for seed in [] if runs else arguments.seeds:
        for extra in ((), WORKDIR) if arguments.workdir else ((),):
            overrides = [f"run.seed={seed}", f"run.output={arguments.output}", *arguments.overrides, *extra]
            runs.append(run_train(load_config([arguments.recipe], overrides), resume=None, display=False))
            print(f"{runs[-1]}", file=sys.stderr)
    evaluations = [(run.name, evaluation) for run in runs for evaluation in load_evaluations(run)]
    print(to_behaviour(evaluations), to_kinds(evaluations), sep="\n\n")


def load_evaluations(run: Path) -> list[Evaluation]:
    """The run's evaluations: after the warm-up, after RL, and controls."""
    summaries = load_summaries(run)
    last = max(summary["step"] for summary in summaries)
    return [
        Evaluation(label=summary["label"], groups=load_groups(run / "evaluations", summary["name"]))
        for summary in summaries
        if is_control(summary) or summary["step"] in (0, last)
    ]


def to_behaviour(evaluations: Sequence[tuple[str, Evaluation]]) -> str:
    """One row per evaluation: the reward that trained, the pristine verdict, and what the policy did."""
    lines = [
        "| run | policy | repaired | rewarded | tests run before the first edit | edits per repair | "
        "repeated an edit | repaired after a test of an edit failed | touched a test | turns |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run, evaluation in evaluations:
        rewards = evaluation.rewards()
        repaired = [reward for reward in rewards if reward.part("success")]
        red = [reward for reward in rewards if reward.part("red_after_edit")]
        recovered = sum(1 for reward in red if reward.part("success"))
        edits = sum(reward.part("edits") or 0.0 for reward in repaired)
        turns = [len(trajectory.turns) for trajectory in evaluation.trajectories()]
        cells = [
            share(len(repaired), len(rewards)),
            f"{sum(reward.total for reward in rewards) / len(rewards):.3f}",
            f"{sum(reward.part('tested_first') or 0.0 for reward in rewards) / len(rewards):.3f}",
            f"{edits / len(repaired):.2f}" if repaired else "",
            f"{sum(1 for reward in rewards if reward.part('repeats')) / len(rewards):.3f}",
            f"{recovered} of {len(red)}",
            f"{sum(reward.part('protected') or 0.0 for reward in rewards) / len(rewards):.3f}",
            f"{sum(turns) / len(turns):.1f}",
        ]
        lines.append(f"| {run} | {evaluation.label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def to_kinds(evaluations: Sequence[tuple[str, Evaluation]]) -> str:
    """One row per evaluation: repaired, by kind of bug, and by whether the bug raises."""
    lines = [f"| run | policy | {' | '.join(KINDS)} | raises | wrong value |", "|---" * (len(KINDS) + 4) + "|"]
    for run, evaluation in evaluations:
        rows = [evaluation.rewards(kind) for kind in KINDS]
        rows += [evaluation.rewards(raises=raises) for raises in (True, False)]
        cells = [f"{sum(reward.part('success') or 0.0 for reward in row):.0f} of {len(row)}" for row in rows]
        lines.append(f"| {run} | {evaluation.label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def share(successes: int, count: int) -> str:
    """A share with its 95% Wilson interval."""
    low, high = compute_wilson_interval(successes, count)
    return f"{successes / count:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
