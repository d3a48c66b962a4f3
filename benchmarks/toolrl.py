"""Print the result table of the ToolRL recipe: several seeds, fine-grained and coarse rewards; writes docs/results.md's
table.

    python benchmarks/toolrl.py [a.b=value ...] [--seeds 0 1 2] [--granularities fine coarse] [--output runs/benchmark]

Trains `toolrl/tiny` once per seed and granularity; the first granularity of a seed makes its warm-up, the
others start from the same checkpoint. Prints two Markdown
tables: exact calls by kind of request, and how fast each reward got there. Every number comes from the run folders,
which are kept."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from turnwise.config.load import load_config
from turnwise.reporting.summaries import load_summaries
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder

RECIPE = Path("toolrl/tiny")
KINDS = ("1call", "2calls", "3calls", "missing", "irrelevant")
WITH_CALLS = KINDS[:3]
TARGET = 0.8
WINDOW = 5
"""Steps over which training success is averaged before it is compared with `TARGET`."""


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--granularities", nargs="+", default=["fine", "coarse"])
    parser.add_argument("--output", default="runs/benchmark")
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    results = []
    for seed in arguments.seeds:
        warmed: list[str] = []
        for granularity in arguments.granularities:
            overrides = [
                f"run.seed={seed}",
                f"run.output={arguments.output}",
                f"run.name=toolrl_{granularity}",
                f"environment.args.granularity={granularity}",
                *arguments.overrides,
                *warmed,
            ]
            run = run_train(load_config([RECIPE], overrides), resume=None, display=False)
            print(f"{run}", file=sys.stderr)
            warmed = warmed or [f"model.path={run / 'checkpoints' / 'step_000000'}", "sft.steps=0"]
            results.append({"seed": seed, "granularity": granularity, **measure(run)})
    print(to_markdown(results))


def measure(run: Path) -> dict[str, Any]:
    """The numbers of one run: rows by kind before and after RL, exact calls under the controls, and the speed of RL."""
    rows = {summary["name"]: {row["kind"]: row for row in summary["rows"]} for summary in load_summaries(run)}
    plain = sorted(name for name in rows if name.count("_") == 1)
    train = [row["rollout/success"] or 0.0 for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    means = [sum(train[end - WINDOW : end]) / WINDOW for end in range(WINDOW, len(train) + 1)]
    return {
        "before": rows[plain[0]],
        "after": rows[plain[-1]],
        "controls": {name.split("_", 2)[2]: pool(rows[name]) for name in sorted(rows) if name.count("_") > 1},
        "steps_to_target": next((end + WINDOW for end, mean in enumerate(means) if mean >= TARGET), None),
        "mean_success": sum(train) / len(train) if train else float("nan"),
    }


def pool(rows: dict[str, Any]) -> float:
    """Exact calls over the requests that need a call."""
    chosen = [rows[kind] for kind in WITH_CALLS if kind in rows]
    return sum(row["success"] * row["n"] for row in chosen) / sum(row["n"] for row in chosen)


def to_markdown(results: list[dict[str, Any]]) -> str:
    """One row per run in each table."""
    controls = sorted({name for result in results for name in result["controls"]})
    lines = [
        f"| seed | reward | policy | all | {' | '.join(KINDS)} | {' | '.join(f'{name}*' for name in controls)} |",
        "|---" * (4 + len(KINDS) + len(controls)) + "|",
    ]
    for result in results:
        for policy in ("before", "after"):
            rows = result[policy]
            taken = [f"{result['controls'][name]:.3f}" if policy == "after" else "" for name in controls]
            row = rows["all"]
            cells = [
                f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]",
                *(f"{rows[kind]['success']:.3f}" for kind in KINDS),
            ]
            label = f"{policy} RL"
            lines.append(f"| {result['seed']} | {result['granularity']} | {label} | {' | '.join([*cells, *taken])} |")
    lines += [
        "",
        "\\* exact calls on the requests that take a call",
        "",
        f"| seed | reward | steps to {TARGET:.0%} training success (mean of {WINDOW}) | mean training success over "
        "all steps |",
        "|---|---|---|---|",
    ]
    for result in results:
        steps = result["steps_to_target"] or "never"
        lines.append(f"| {result['seed']} | {result['granularity']} | {steps} | {result['mean_success']:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
