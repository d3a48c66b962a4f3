"""Print what a policy has learned in text houses, as a Markdown table on standard output.

    python benchmarks/house.py RUN [RUN ...]

One line per evaluation of every run folder: success over all tasks and by kind, with 95% Wilson intervals; the share of
first looks at a place where the thing belongs that the task names (priors), of looks at a place whose inside was seen
(looking twice), and of placings of a thing that is as the task wants it, where the task changes it (change before
placing); and the replies of an episode.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from turnwise.core.types import Scored, Trajectory
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.summary import is_success
from turnwise.store.trajectories import load_groups
from turnwise_worlds.house.world import Kind

SIGNALS = {
    "looks_where_it_belongs": "first look where it belongs",
    "looks_again": "looks again",
    "is_prepared": "changed before placing",
}


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    rows: list[tuple[str, dict[str, list[Trajectory]]]] = []
    for run in parser.parse_args().runs:
        for file in sorted((run / "evaluations").glob("*.npz")):
            by_kind: dict[str, list[Trajectory]] = {}
            for group in load_groups(file.parent, file.stem):
                by_kind.setdefault(str(group.task.payload["kind"]), []).extend(group.trajectories)
            rows.append((f"{run.name} {file.stem}", by_kind))
    kinds = [kind for kind in get_args(Kind) if any(kind in by_kind for _, by_kind in rows)]
    titles = ("run, evaluation", "all", *kinds, *SIGNALS.values(), "replies")
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    for name, by_kind in rows:
        every = [trajectory for trajectories in by_kind.values() for trajectory in trajectories]
        successes = (show_success(by_kind.get(kind, ())) for kind in kinds)
        signals = (show_signal(every, signal) for signal in SIGNALS)
        replies = sum(len(each.turns) for each in every) / len(every)
        print(f"| {' | '.join((name, show_success(every), *successes, *signals, f'{replies:.1f}'))} |")


def show_success(trajectories: Sequence[Trajectory]) -> str:
    """Share of scored trajectories that succeeded, with its interval; "" for none."""
    results = [is_success(each) for each in trajectories if isinstance(each.reward, Scored)]
    return show_share(sum(results), len(results)) if results else ""


def show_signal(trajectories: Sequence[Trajectory], name: str) -> str:
    """Share of turns with this signal where it is 1, with its interval and their number; "" for none."""
    values = [
        signal.value for each in trajectories for turn in each.turns for signal in turn.signals if signal.name == name
    ]
    return f"{show_share(int(sum(values)), len(values))} of {len(values)}" if values else ""


def show_share(count: int, total: int) -> str:
    """Write a share and its 95% Wilson interval."""
    low, high = compute_wilson_interval(count, total)
    return f"{count / total:.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    main()
