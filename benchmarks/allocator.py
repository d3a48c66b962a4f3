"""Measure the gain from keeping freed blocks (`models/allocator.py`), as JSON on standard output.

    python benchmarks/allocator.py [a.b=value ...] [--recipe recipes/search_r1/tiny.toml] [--rounds 3]

A short training run in a separate process, with and without, in turns. `GLIBC_TUNABLES` set to a default turns the
setting off and changes nothing else. Medians over rounds of the median step; page faults and peak memory are those of
the whole process."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECIPE = Path(__file__).parent.parent / "recipes" / "search_r1" / "tiny.toml"
SHORT = ["sft.steps=60", "train.steps=4", "evaluate.tasks=20", "train.num_threads=1"]
PHASES = {"sft/seconds": "sft", "rollout/seconds": "train", "train/seconds": "train"}
PROGRAM = """
import json, resource, sys
from pathlib import Path
from turnwise.config.load import load_config
from turnwise.runs.train import run_train
run = run_train(load_config([Path(sys.argv[1])], sys.argv[2:]), resume=None, display=False)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"run": str(run), "page_faults": used.ru_minflt, "peak_mib": used.ru_maxrss / 1024}))
"""


def measure(recipe: Path, overrides: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Measure one run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PROGRAM, str(recipe), f"run.output={folder}", *SHORT, *overrides]
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True, timeout=3600
        )
        result = json.loads(done.stdout.splitlines()[-1])
        rows = [
            json.loads(line)
            for line in (Path(result.pop("run")) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        ]
    steps = {name: [row[name] for row in rows if row["phase"] == phase] for name, phase in PHASES.items()}
    return {**{name: statistics.median(seconds) for name, seconds in steps.items()}, **result}


def main() -> None:
    """Run and print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    ways = {"kept": {}, "given_back": {"GLIBC_TUNABLES": "glibc.malloc.perturb=0"}}
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(options.rounds):
        for way, environment in ways.items():
            rows[way].append(measure(options.recipe, options.overrides, environment))
            print(f"round {number} {way}: {rows[way][-1]}", file=sys.stderr, flush=True)
    report: dict[str, Any] = {
        way: {key: statistics.median(row[key] for row in of_way) for key in of_way[0]} for way, of_way in rows.items()
    }
    report["given_back_over_kept"] = {
        key: [round(mine[key] / kept[key], 3) for kept, mine in zip(rows["kept"], rows["given_back"], strict=True)]
        for key in PHASES
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
