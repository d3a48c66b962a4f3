"""Real training runs against what the simulator predicts for them; prints the table of docs/simulation.md, or JSON.

    python benchmarks/simulation.py [--arms ...] [--steps 24] [--output runs/simulation] [--train-only] [--json]

Every arm is `recipes/search_r1/tiny.toml` with slow tools (`schedule_world.py`), one torch thread per role and a learning
rate that changes no weight, so that a draw's rollouts are the same in every arm; all start from one short warm-up. The
simulator is calibrated on the arm "synchronous" alone: lengths by draw and member, the engine's and the trainer's
seconds. Waits it draws as the world does, by task, member and call, whatever the latency of the arm.

Runs stay in `--output`: called again, it trains what is missing and predicts everything anew."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import schedule

SLOW, QUICK, LONG = (0.2, 2.0), (0.1, 1.0), (0.5, 3.0)
"""Median and 99th percentile of a search's wait, in seconds."""
CALIBRATION = "synchronous"
WARMUP = ("sft.steps=200", "sft.num_demonstrations=6400")


@dataclass(frozen=True, slots=True)
class Arm:
    """What one run adds to the recipe."""

    latency: tuple[float, float]
    overrides: tuple[str, ...] = ()


ARMS: Mapping[str, Arm] = {
    CALIBRATION: Arm(SLOW),
    "over-draw 2": Arm(SLOW, ("schedule.overdraw=2",)),
    "staleness 1": Arm(SLOW, ("schedule.max_staleness=1",)),
    "staleness 2": Arm(SLOW, ("schedule.max_staleness=2",)),
    "staleness 4": Arm(SLOW, ("schedule.max_staleness=4",)),
    "staleness 2, 12 groups open": Arm(SLOW, ("schedule.max_staleness=2", "schedule.max_open_groups=12")),
    "staleness 2, 64 slots": Arm(SLOW, ("schedule.max_staleness=2", "rollout.max_open=64")),
    "staleness 1, late drop": Arm(
        SLOW, ("schedule.max_staleness=1", "schedule.late=drop", "schedule.patience_s=0.25")
    ),
    "staleness 1, late cut": Arm(
        SLOW, ("schedule.max_staleness=1", "schedule.late=cut", "schedule.patience_s=0.25")
    ),
    "synchronous, 4 x 16": Arm(SLOW, ("rollout.tasks_per_step=4", "rollout.group_size=16")),
    "staleness 4, 4 x 8": Arm(SLOW, ("schedule.max_staleness=4", "rollout.tasks_per_step=4")),
    "quick: synchronous": Arm(QUICK),
    "quick: staleness 1": Arm(QUICK, ("schedule.max_staleness=1",)),
    "quick: staleness 2": Arm(QUICK, ("schedule.max_staleness=2",)),
    "long: synchronous": Arm(LONG),
    "long: over-draw 2": Arm(LONG, ("schedule.overdraw=2",)),
    "long: staleness 1": Arm(LONG, ("schedule.max_staleness=1",)),
    "long: staleness 4": Arm(LONG, ("schedule.max_staleness=4",)),
}


def main() -> None:
    """Train what is missing, then print what was predicted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--output", type=Path, default=Path("runs") / "simulation")
    parser.add_argument("--train-only", action="store_true", help="predict nothing")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    start = schedule.run_apart(schedule.prepare_start, arguments.output, 0, WARMUP)
    for name in arguments.arms:
        schedule.run_apart(train, arguments.output, start, name, arguments.steps)


def folder_of(output: Path, name: str) -> Path:
    """Where an arm's run is."""
    return output / name.replace(" ", "-").replace(",", "").replace(":", "")


def train(output: Path, start: Path, name: str, steps: int) -> None:
    """Train an arm unless it was trained before; the machine's load while it trained stays in `load.json`."""
    import torch

    from turnwise.config.load import dump_resolved, load_config
    from turnwise.runs.build import fit_to_machine
    from turnwise.runs.methods import check_methods
    from turnwise.runs.train import run_train
    from turnwise.store.run_folder import RunFolder

    run = folder_of(output, name)
    if (run / "load.json").exists():
        return
    torch.set_num_threads(1)
    shutil.rmtree(run, ignore_errors=True)
    overrides = [*WARMUP, *schedule.COMMON, *ARMS[name].overrides, "train.lr=1e-12", f"train.steps={steps}"]
    config = load_config([schedule.RECIPE], [*overrides, "evaluate.tasks=0", f"run.name={run.name}"])
    median_s, p99_s = ARMS[name].latency
    arguments = {**config.environment.args, "median_s": median_s, "p99_s": p99_s}
    environment = config.environment.model_copy(update={"args": arguments})
    config = fit_to_machine(check_methods(config.model_copy(update={"environment": environment})))
    RunFolder.create(run).write_json("config.json", dump_resolved(config))
    shutil.copytree(start, run / "checkpoints" / start.name)
    before = os.times()
    run_train(None, resume=run, display=False)
    after = os.times()
    busy_s = after.user + after.system - before.user - before.system
    row: dict[str, Any] = {"load": os.getloadavg()[1], "processor_s": busy_s, "wall_s": after.elapsed - before.elapsed}
    (run / "load.json").write_text(json.dumps(row), encoding="utf-8")
    print(json.dumps({"arm": name, **row}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
