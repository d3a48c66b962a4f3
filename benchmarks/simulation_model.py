"""Compare training runs of a model with the simulator's predictions; prints a table of docs/simulation.md, or JSON.

    python benchmarks/simulation_model.py [--arms ...] [--steps 24] [--output runs/simulation_model] [--json]

Every arm is `recipes/search_r1/tiny.toml` with slow tools (`schedule_world.py`), one torch thread per role and a
learning rate that changes no weight, so that a draw's rollouts are the same in every arm; all start from one short
warm-up. The simulator is calibrated on the arm "synchronous" alone: lengths by draw and member, the engine's and the
trainer's seconds. It draws waits as the world does, by task, member and call, whatever the latency of the arm.

Engine and trainer compute here: other work on the machine slows them, and a calibration on a quiet machine does not
hold on a loaded one. Runs stay in `--output`: called again, it trains what is missing and predicts again."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import schedule
from simulation_table import CALIBRATION, folder_of, predict_arms, tabulate

from turnwise.core.seeds import rng
from turnwise.core.types import TrajectoryGroup
from turnwise.forecast.simulation.fit import to_member
from turnwise.forecast.simulation.work import Member, Spread, Turn
from turnwise.store.run_folder import RunFolder

SLOW, QUICK = (0.2, 2.0), (0.1, 1.0)
"""Median and 99th percentile of a search's wait, in seconds."""
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
    "staleness 1, late drop": Arm(SLOW, ("schedule.max_staleness=1", "schedule.late=drop", "schedule.patience_s=0.25")),
    "staleness 1, late cut": Arm(SLOW, ("schedule.max_staleness=1", "schedule.late=cut", "schedule.patience_s=0.25")),
    "quick: synchronous": Arm(QUICK),
    "quick: staleness 2": Arm(QUICK, ("schedule.max_staleness=2",)),
}


def main() -> None:
    """Train what is missing, then print what was predicted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--output", type=Path, default=Path("runs") / "simulation_model")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    start = schedule.run_apart(schedule.prepare_start, arguments.output, 0, WARMUP)
    for name in arguments.arms:
        schedule.run_apart(train, arguments.output, start, name, arguments.steps)
    rows = predict_arms(arguments.output, arguments.arms, lambda name, groups: SlowWork(groups, ARMS[name].latency))
    print(json.dumps(rows, indent=1) if arguments.json else tabulate(rows))


def train(output: Path, start: Path, name: str, steps: int) -> None:
    """Train an arm unless it was trained before; the machine's load during training is kept in `load.json`."""
    import torch

    from turnwise.building.checks import check_recipe
    from turnwise.config.load import dump_resolved, load_config
    from turnwise.runs.build import fit_to_machine
    from turnwise.runs.train import run_train

    run = output / folder_of(name)
    if (run / "load.json").exists():
        return
    torch.set_num_threads(1)
    shutil.rmtree(run, ignore_errors=True)
    overrides = [*WARMUP, *schedule.COMMON, *ARMS[name].overrides, "train.lr=1e-12", f"train.steps={steps}"]
    config = load_config([schedule.RECIPE], [*overrides, "evaluate.tasks=0", f"run.name={run.name}"])
    median_s, p99_s = ARMS[name].latency
    arguments = {**config.environment.args, "median_s": median_s, "p99_s": p99_s}
    environment = config.environment.model_copy(update={"args": arguments})
    config = fit_to_machine(check_recipe(config.model_copy(update={"environment": environment}))).config
    RunFolder.create(run).write_json("config.json", dump_resolved(config))
    shutil.copytree(start, run / "checkpoints" / start.name)
    before = os.times()
    run_train(None, resume=run, display=False)
    after = os.times()
    busy_s = after.user + after.system - before.user - before.system
    row: dict[str, Any] = {"load": os.getloadavg()[1], "processor_s": busy_s, "wall_s": after.elapsed - before.elapsed}
    (run / "load.json").write_text(json.dumps(row), encoding="utf-8")
    print(json.dumps({"arm": name, **row}), file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------ predicted


@dataclass(frozen=True, slots=True)
class SlowWork:
    """Tokens from a stored run, waits as in `schedule_world.SlowSearch` at another latency. Implements `Work`."""

    groups: Sequence[TrajectoryGroup]
    latency: tuple[float, float]

    def __call__(self, draw: int, member: int) -> Member:
        """See `Work`. Members beyond the stored ones repeat another member's tokens with their own waits."""
        group = self.groups[draw % len(self.groups)]
        trajectory = group.trajectories[member % len(group.trajectories)]
        waits = rng("wait", group.task.id, member + 1)
        spread = Spread(median=self.latency[0], p99=self.latency[1])
        location = math.log(spread.median)
        turns = []
        for each, turn in zip(to_member(trajectory), trajectory.turns, strict=True):
            calls_s = [waits.lognormvariate(location, spread.scale) for _ in turn.message.tool_calls]
            turns.append(Turn(each.context, each.sampled, math.fsum(calls_s)))
        return turns


if __name__ == "__main__":
    main()
