"""How long training waits for its evaluations in line and beside it, in runs that take turns on the same machine.

    OMP_NUM_THREADS=1 python benchmarks/evaluation_fleet.py [PAIRS [OVERRIDE ...]]

Each pair trains the same small recipe twice, first with evaluate.num_workers=0, then with 1 (in the next pair the other
way round), and checks that training and evaluations gave the same numbers. About 30 processor seconds per pair, without
overrides of the recipe.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from turnwise.config.load import load_config
from turnwise.runs.train import run_train
from turnwise.store.run_folder import RunFolder

RECIPE = [
    *("environment.name=turnwise.testing.notes:NotesFamily", "tokenizer.num_texts=200", "tokenizer.vocab_size=400"),
    *("rollout.tasks_per_step=8", "rollout.group_size=8", "rollout.max_tokens=96", "rollout.max_turn_tokens=16"),
    *("sft.steps=10", "sft.batch_size=16", "sft.num_demonstrations=80"),
    *("train.num_threads=1", "engine.num_threads=1", "engine.max_concurrency=64", "train.steps=12"),
    *("train.parity_every=0", "train.checkpoint_every=0", "evaluate.tasks=200", "evaluate.every=3"),
]
TIMES = ("time", "seconds", "_per_s")


def train(output: Path, num_workers: int, overrides: Sequence[str]) -> tuple[dict[str, float], list[str]]:
    """Times of a run, and its rows without times."""
    began, used = time.monotonic(), _read_processor_s()
    config = load_config([], [*RECIPE, *overrides, f"run.output={output}", f"evaluate.num_workers={num_workers}"])
    run = run_train(config, resume=None, display=False)
    whole = time.monotonic() - began
    rows = RunFolder.open(run).read_metrics()
    steps = [row for row in rows if row["phase"] == "train"]
    times = {
        "waits for evaluations": sum(row.get("schedule/evaluate_seconds") or 0.0 for row in steps),
        "first to last step": steps[-1]["time"] - steps[0]["time"],
        "whole run": whole,
        "processor": _read_processor_s() - used,
    }
    return times, sorted(str(_drop_times(row)) for row in rows)


def _drop_times(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.endswith(TIMES) and "schedule/" not in name}


def _read_processor_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Print the seconds of both, and their ratios pair by pair."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    found: list[dict[int, dict[str, float]]] = []
    for number in range(pairs):
        both, rows = {}, []
        with tempfile.TemporaryDirectory() as output:
            for num_workers in (0, 1) if number % 2 == 0 else (1, 0):
                both[num_workers], values = train(Path(output) / str(num_workers), num_workers, sys.argv[2:])
                rows.append(values)
        if rows[0] != rows[1]:
            raise SystemExit("the two runs of a pair gave different numbers")
        found.append(both)
        print(f"pair {number + 1}: {both}", file=sys.stderr, flush=True)
    print("| seconds | in line | beside training | ratio, pair by pair |\n|---|---|---|---|")
    for name in found[0][0]:
        line, beside = ([both[num_workers][name] for both in found] for num_workers in (0, 1))
        ratios = ", ".join(f"{b / a:.3f}" for a, b in zip(line, beside, strict=True))
        print(f"| {name} | {median(line):.2f} | {median(beside):.2f} | {ratios} |")


if __name__ == "__main__":
    main()
