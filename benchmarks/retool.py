"""Print the result table of the ReTool recipe: several seeds, each also without the interpreter; writes
docs/results.md's table.

    python benchmarks/retool.py [a.b=value ...] [--seeds 0 1 2] [--output runs/benchmark]

Trains `recipes/retool/tiny.toml` once per seed, then once per seed with `environment.args.code=false` (the policy never
has an interpreter, in the warm-up, in RL or in the evaluation). Every number comes from the summaries in the run
folders, which are kept."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from turnwise.config.load import load_config
from turnwise.reporting.summaries import load_summaries
from turnwise.runs.train import run_train

RECIPE = Path(__file__).parent.parent / "recipes" / "retool" / "tiny.toml"


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", default="runs/benchmark")
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    with_code: list[dict[str, dict[str, Any]]] = []
    without: list[dict[str, dict[str, Any]]] = []
    for seed in arguments.seeds:
        for code in (True, False):
            overrides = [f"run.seed={seed}", f"run.output={arguments.output}", *arguments.overrides]
            if not code:
                overrides += ["environment.args.code=false", "run.name=retool_without_code"]
            run = run_train(load_config([RECIPE], overrides), resume=None, display=False)
            print(f"{run}", file=sys.stderr)
            (with_code if code else without).append(measure(run))
    print(to_markdown(arguments.seeds, with_code, without))


def measure(run: Path) -> dict[str, dict[str, Any]]:
    """The rows over all held-out tasks: before and after RL, and with the interpreter taken away."""
    rows = {
        summary["name"]: next(row for row in summary["rows"] if row["kind"] == "all") for summary in load_summaries(run)
    }
    plain = sorted(name for name in rows if name.count("_") == 1)
    controls = [name for name in rows if name.count("_") > 1]
    summaries = {"before": rows[plain[0]], "after": rows[plain[-1]]}
    return summaries | ({"code_off": rows[controls[0]]} if controls else {})


def to_markdown(seeds: list[int], with_code: list[dict[str, Any]], without: list[dict[str, Any]]) -> str:
    """One row per seed."""
    lines = [
        "| seed | after SFT | after RL | code taken away | trained without code | recovered after an error, before "
        "| after "
        "| sampled tokens, before | after |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for seed, run, bare in zip(seeds, with_code, without, strict=True):
        cells = [_share(run["before"]), _share(run["after"]), _share(run["code_off"]), _share(bare["after"])]
        cells += [_recovered(run["before"]), _recovered(run["after"])]
        cells += [f"{run[when]['response_tokens']:.1f}" for when in ("before", "after")]
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(row: dict[str, Any]) -> str:
    return f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def _recovered(row: dict[str, Any]) -> str:
    """Among the trajectories with a failed program, how many ended well."""
    return "none failed" if row["recovered"] is None else f"{row['recovered']:.3f} of {row['errored']}"


if __name__ == "__main__":
    main()
