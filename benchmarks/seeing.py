"""Print what policies that see were worth on held-out tasks, as a Markdown table on standard output.

    python benchmarks/seeing.py RUN [RUN ...]

One line per evaluation of every run folder, for the families `pages` and `screens`: success over all tasks and by kind,
with 95% Wilson intervals; how many calls were made; the share of zooms that lead to a red cell that was not shown
before; the share of answers that are what the crops show (of those given after a crop).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from turnwise.core.types import Scored, Trajectory
from turnwise.evaluation.intervals import compute_wilson_interval
from turnwise.evaluation.summary import is_success
from turnwise.store.trajectories import load_groups

KINDS = ("read", "compare", "nested", "plain", "press", "form", "list")


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    rows = []
    for run in parser.parse_args().runs:
        for file in sorted((run / "evaluations").glob("*.npz")):
            groups = load_groups(file.parent, file.stem)
            by_kind: dict[str, list[Trajectory]] = {}
            for group in groups:
                by_kind.setdefault(str(group.task.payload["kind"]), []).extend(group.trajectories)
            every = [trajectory for trajectories in by_kind.values() for trajectory in trajectories]
            rows.append((f"{run.name} {file.stem}", every, by_kind))
    kinds = [kind for kind in KINDS if any(kind in by_kind for _, _, by_kind in rows)]
    print(f"| run, evaluation | all | {' | '.join(kinds)} | calls | looks at a mark | reads |")
    print("|---" * (len(kinds) + 5) + "|")
    for name, every, by_kind in rows:
        calls = sum(each.num_tool_calls for each in every) / len(every)
        cells = [name, show_success(every), *(show_success(by_kind.get(kind, [])) for kind in kinds), f"{calls:.2f}"]
        print(f"| {' | '.join(cells)} | {show_signal(every, 'looks_at_mark')} | {show_signal(every, 'reads_crop')} |")


def show_success(trajectories: Sequence[Trajectory]) -> str:
    """Share of scored trajectories that succeeded, with its interval; "" for none."""
    results = [is_success(each) for each in trajectories if isinstance(each.reward, Scored)]
    if not results:
        return ""
    low, high = compute_wilson_interval(sum(results), len(results))
    return f"{sum(results) / len(results):.3f} [{low:.3f}, {high:.3f}]"


def show_signal(trajectories: Sequence[Trajectory], name: str) -> str:
    """Mean of a signal of turns, and how many there are; "" for none."""
    values = [
        signal.value for each in trajectories for turn in each.turns for signal in turn.signals if signal.name == name
    ]
    return f"{sum(values) / len(values):.3f} of {len(values)}" if values else ""


if __name__ == "__main__":
    main()
