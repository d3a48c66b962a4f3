"""Show what parts of a reward did to success and to themselves, from finished runs of `shaping/drawers` and overlays.

    python benchmarks/reward_parts.py RUN [RUN ...]

One row of Markdown per run: held-out success before and after RL with its 95% Wilson interval, and in the first and the
last five steps the part's value, the share of sampled episodes that opened the named drawer, and their calls."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.config.load import load_resolved
from turnwise.reporting.summaries import load_summaries
from turnwise.store.run_folder import RunFolder

HEAD = ("part", "gate", "seed", "success before", "after", "the part, first to last", "opened", "calls")
STEPS = 5
"""Steps at either end that a mean is taken over."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for path in parser.parse_args().runs:
        print(f"| {' | '.join(list_cells(RunFolder.open(path)))} |")


def list_cells(run: RunFolder) -> list[str]:
    """The cells of a run."""
    config = load_resolved(run.path / "config.json")
    part = next((name for name in config.rewards if name != "task"), "")
    rows = [row for row in run.read_metrics() if row["phase"] == "train"]
    first, *_, last = (summary["rows"][-1] for summary in load_summaries(run.path))
    return [
        part or "none",
        config.credit.shaping.gate or "-",
        str(config.run.seed),
        f"{first['success']:.1%}",
        f"{last['success']:.1%} [{last['low']:.1%}, {last['high']:.1%}]",
        span(rows, f"term/{part}") if part else "-",
        span(rows, "reward/opened"),
        span(rows, "rollout/tool_calls"),
    ]


def span(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """The mean of a metric over the first steps and over the last ones."""
    values = [row[name] for row in rows if row.get(name) is not None]
    return f"{statistics.mean(values[:STEPS]):.2f} to {statistics.mean(values[-STEPS:]):.2f}"


if __name__ == "__main__":
    main()
