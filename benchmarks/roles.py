"""Measure what a second learner, and a population of past selves, cost compared with one learner: processor seconds per
step, as a Markdown table.

    python benchmarks/roles.py [--seeds 3] [a.b=value ...]

Trains `roles.toml` once per arm and seed, each in a separate process. A step's seconds are the processor seconds
between the first step and the last, including evaluations and checkpoints, divided by the number of steps; success is
that of both roles on held-out tasks, before and after."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.config.load import load_config
from turnwise.core.events import Event, StepEnds
from turnwise.reporting.summaries import load_summaries, row_of
from turnwise.runs.recorders import FolderRecorder
from turnwise.runs.train import run_train

RECIPE = Path(__file__).with_name("roles.toml")
ARMS = {
    "one learner plays both roles": [],
    "two learners": ["roles.hearer=learns:second"],
    "hearer follows": ["roles.hearer=follows"],
    "hearer is the latest past": ["roles.hearer=past:latest"],
    "hearer is any past": ["roles.hearer=past:uniform"],
    "hearer is the past that wins": ["roles.hearer=past:wins"],
    "hearer is scripted": ["roles.hearer=scripted:oracle"],
}


def main() -> None:
    """Print the table or, with `--arm`, the figures of one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arm", choices=list(ARMS), help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(measure(options.arm, options.overrides)))
        return
    print("| hearer | seconds a step | share of one learner | success before | after |")
    print("|---|---|---|---|---|")
    base = 0.0
    for arm in ARMS:
        rows = [start(arm, [f"run.seed={seed}", *options.overrides]) for seed in range(options.seeds)]
        seconds = statistics.median(row["seconds"] for row in rows)
        base = base or seconds
        before, after = (", ".join(f"{row[name]:.2f}" for row in rows) for name in ("before", "after"))
        print(f"| {arm} | {seconds:.3f} | {seconds / base:.2f} | {before} | {after} |", flush=True)


def start(arm: str, overrides: Sequence[str]) -> dict[str, float]:
    """Run one arm in a separate process."""
    path = os.pathsep.join([str(RECIPE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, __file__, "--arm", arm, "--", *overrides]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(arm: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Train, and record the processor seconds at every step."""
    clocks: list[float] = []
    record = FolderRecorder.record

    def note(self: FolderRecorder, event: Event) -> None:
        record(self, event)
        if isinstance(event, StepEnds) and event.phase == "train":
            used = resource.getrusage(resource.RUSAGE_SELF)
            clocks.append(used.ru_utime + used.ru_stime)

    FolderRecorder.record = note  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        config = load_config([RECIPE], [f"run.output={folder}", *ARMS[arm], *overrides])
        run = run_train(config, resume=None, display=False)
        successes = [row_of(summary, "all") for summary in load_summaries(run)]
    before, after = (0.0 if row is None else float(row["success"]) for row in (successes[0], successes[-1]))
    return {"seconds": (clocks[-1] - clocks[0]) / (len(clocks) - 1), "before": before, "after": after}


if __name__ == "__main__":
    main()
