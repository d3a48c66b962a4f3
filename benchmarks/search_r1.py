"""Print the result table of the Search-R1 recipe: several seeds, with and without masked observations; writes
docs/results.md's table.

    python benchmarks/search_r1.py [a.b=value ...] [--seeds 0 1 2] [--output runs/benchmark]

Trains `recipes/search_r1/tiny.toml` once per seed, then once per seed with `loss.mask_observations=false` (Search-R1's
ablation). Prints the Markdown table, and JSON with `--json`. Every
number comes from the summaries in the run folders, which are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from turnwise.config.load import load_config
from turnwise.reporting.summaries import load_summaries
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder

RECIPE = Path(__file__).parent.parent / "recipes" / "search_r1" / "tiny.toml"
NEED_SEARCH = ("1hop", "2hop")
"""Kinds that cannot be answered without the tool."""


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", default="runs/benchmark")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    results = []
    for seed in arguments.seeds:
        for masked in (True, False):
            overrides = [f"run.seed={seed}", f"run.output={arguments.output}", *arguments.overrides]
            if not masked:
                overrides += ["loss.mask_observations=false", "run.name=search_r1_unmasked"]
            run = run_train(load_config([RECIPE], overrides), resume=None, display=False)
            results.append(measure(run, seed, masked))
            print(f"{run}", file=sys.stderr)
    print(json.dumps(results, indent=1) if arguments.json else to_markdown(results))


def measure(run: Path, seed: int, masked: bool) -> dict[str, Any]:
    """The numbers of one run."""
    summaries = load_summaries(run)
    rows = {s["name"]: {r["kind"]: r for r in s["rows"]} for s in summaries}
    names = sorted(name for name in rows if name.count("_") == 1)
    train = [r for r in RunFolder.open(run).read_metrics() if r["phase"] == "train"]
    halfway = next((r["step"] for r in train if (r["rollout/success"] or 0) >= 0.8), None)
    return {
        "seed": seed,
        "masked": masked,
        "before": rows[names[0]],
        "after": rows[names[-1]],
        "controls": {
            name: pool([row for kind, row in rows[name].items() if kind in NEED_SEARCH])
            for name in rows
            if name.count("_") > 1
        },
        "steps_to_80": halfway,
    }


def pool(rows: list[dict[str, Any]]) -> float:
    """Success over several kinds together."""
    return sum(r["success"] * r["n"] for r in rows) / sum(r["n"] for r in rows)


def share(row: dict[str, Any]) -> str:
    """Format as `0.912 [0.887, 0.932]`."""
    return f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


def to_markdown(results: list[dict[str, Any]]) -> str:
    """Two tables: the recipe, and the ablation."""
    lines = [
        "| seed | all, before RL | all, after RL | 2-hop, before | 2-hop, after | searches per 2-hop question "
        "| search off* | documents shuffled* |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        if r["masked"]:
            off = next((v for k, v in r["controls"].items() if "off" in k), float("nan"))
            shuffled = next((v for k, v in r["controls"].items() if "shuffled" in k), float("nan"))
            calls = f"{r['before']['2hop']['tool_calls']:.2f} to {r['after']['2hop']['tool_calls']:.2f}"
            cells = [
                share(r["before"]["all"]),
                share(r["after"]["all"]),
                share(r["before"]["2hop"]),
                share(r["after"]["2hop"]),
            ]
            lines.append(f"| {r['seed']} | {' | '.join(cells)} | {calls} | {off:.3f} | {shuffled:.3f} |")
    lines += [
        "",
        "\\* success on the questions that need a search (1-hop and 2-hop)",
        "",
        "| seed | observations | all, after RL | 2-hop, after RL | first step with training success >= 0.8 |",
        "|---|---|---|---|---|",
    ]
    for r in results:
        label = "masked" if r["masked"] else "unmasked"
        lines.append(
            f"| {r['seed']} | {label} | {share(r['after']['all'])} | {share(r['after']['2hop'])} | "
            f"{r['steps_to_80'] or 'never'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
