"""Compare samples and kept samples in each round of a repair run with rejection; writes docs/results.md's table.

    python benchmarks/rejection.py RUN [RUN ...]

Reads the stored groups and chooses again as the run did. Every column after the counts is a mean over attempts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from turnwise.building.learners import build_learner
from turnwise.building.resolved import resolve
from turnwise.config.load import load_resolved
from turnwise.core.batch import Columns
from turnwise.core.types import Scored, Trajectory
from turnwise.store.groups import GroupStore
from turnwise.store.journal import read_journal


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    print(
        "| run | round | attempts | number | programs | tests run before the first edit | never tests | "
        "repeats an edit |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for run in parser.parse_args().runs:
        for row in list_rows(run):
            print(f"| {run.name} | {' | '.join(row)} |")


def list_rows(run: Path) -> Iterator[Sequence[str]]:
    """Two rows for every round: one for sampled and scored attempts, one for kept attempts."""
    learner, store, journal = (
        build_learner(resolve(load_resolved(run / "config.json", []))),
        GroupStore(run),
        read_journal(run),
    )
    for step in sorted(journal.taken):
        groups = [store.load(draw) for draw in journal.taken[step]]
        samples = learner.assign(groups, Columns(), step).batch.samples
        kept = {sample.origin.trajectory for sample in samples}
        scored = [(t, group.task.id) for group in groups for t in group.trajectories if isinstance(t.reward, Scored)]
        for name, chosen in (("sampled", scored), ("kept", [pair for pair in scored if pair[0].id in kept])):
            attempts = [attempt for attempt, _ in chosen]
            yield (
                str(step),
                name,
                str(len(attempts)),
                str(len({task for _, task in chosen})),
                mean([part(attempt, "tested_first") for attempt in attempts]),
                mean([float(not part(attempt, "tests")) for attempt in attempts]),
                mean([float(part(attempt, "repeats") > 0) for attempt in attempts]),
            )


def part(attempt: Trajectory, name: str) -> float:
    """A part of a scored attempt's reward."""
    return (attempt.reward.part(name) or 0.0) if isinstance(attempt.reward, Scored) else 0.0


def mean(values: Sequence[float]) -> str:
    """The mean as text; empty if there is nothing to average."""
    return f"{sum(values) / len(values):.2f}" if values else ""


if __name__ == "__main__":
    main()
