"""Compare real schedules with the simulator's predictions; prints the table of docs/simulation.md, or JSON.

    python benchmarks/simulation.py [--arms ...] [--steps 16] [--workers 4] [--output runs/simulation] [--json]

Every arm is a run of the real pipeline whose engine, trainer and tools sleep for known seconds
(`simulation_world.py`), so that a loaded machine hardly disturbs it and several arms run at once. All arms
draw the same trajectories with the same waits. The simulator is calibrated on the arm "synchronous" alone and is not
told those seconds: it fits its engine, trainer and publication to that run's metrics, and takes from its stored groups
what every member of every draw sampled.

Runs stay in `--output`: called again, it runs what is missing and predicts everything again. `simulation_model.py` does
the same with a model that computes."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulation_table import CALIBRATION, folder_of, predict_arms, tabulate
from simulation_world import draw_waits, train

from turnwise.core.types import TrajectoryGroup
from turnwise.forecast.simulation.fit import to_member
from turnwise.forecast.simulation.work import Member, Spread, Turn
from turnwise_sandbox.kernel.syscalls import set_pdeathsig

SLOW, QUICK = Spread(median=0.7, p99=4.0), Spread(median=0.3, p99=1.5)
"""Median and 99th percentile of a search's wait, in seconds."""
Sections = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Arm:
    """One run."""

    tool_s: Spread = SLOW
    schedule: Mapping[str, Any] | None = None
    rollout: Mapping[str, Any] | None = None

    def sections(self, name: str, steps: int) -> Sections:
        """Its recipe: batches of 6 groups of 6."""
        return {
            "run": {"name": name, "seed": 3},
            "rollout": {
                **{"tasks_per_step": 6, "group_size": 6, "max_turns": 4, "max_turn_tokens": 16, "max_tokens": 160},
                **{"max_open": 512, **(self.rollout or {})},
            },
            "schedule": dict(self.schedule or {}),
            "train": {"steps": steps, "checkpoint_every": 0, "num_threads": 1, "micro_batch_tokens": 160},
            "engine": {"max_concurrency": 512},
        }


ARMS: Mapping[str, Arm] = {
    CALIBRATION: Arm(),
    "over-draw 2": Arm(schedule={"overdraw": 2}),
    "staleness 1": Arm(schedule={"max_staleness": 1}),
    "staleness 2": Arm(schedule={"max_staleness": 2}),
    "staleness 4": Arm(schedule={"max_staleness": 4}),
    "staleness 2, 9 groups open": Arm(schedule={"max_staleness": 2, "max_open_groups": 9}),
    "staleness 2, 36 slots": Arm(schedule={"max_staleness": 2}, rollout={"max_open": 36}),
    "staleness 1, late drop": Arm(schedule={"max_staleness": 1, "late": "drop", "patience_s": 0.5}),
    "staleness 1, late cut": Arm(schedule={"max_staleness": 1, "late": "cut", "patience_s": 0.5}),
    "staleness 2, over-draw 1": Arm(schedule={"max_staleness": 2, "overdraw": 1}),
    "synchronous, 3 x 12": Arm(rollout={"tasks_per_step": 3, "group_size": 12}),
    "staleness 4, 3 x 6": Arm(schedule={"max_staleness": 4}, rollout={"tasks_per_step": 3}),
    "quick: synchronous": Arm(tool_s=QUICK),
    "quick: staleness 1": Arm(tool_s=QUICK, schedule={"max_staleness": 1}),
    "quick: staleness 2": Arm(tool_s=QUICK, schedule={"max_staleness": 2}),
    "quick: over-draw 2": Arm(tool_s=QUICK, schedule={"overdraw": 2}),
}


@dataclass(frozen=True, slots=True)
class PacedWork:
    """Tokens from a stored run, waits as in `simulation_world` at another latency. Implements `Work`."""

    groups: Sequence[TrajectoryGroup]
    tool_s: Spread

    def __call__(self, draw: int, member: int) -> Member:
        """See `Work`. Members beyond the stored ones repeat another member's tokens with their own waits."""
        group = self.groups[draw % len(self.groups)]
        trajectory = group.trajectories[member % len(group.trajectories)]
        waits_s = draw_waits(self.tool_s, draw, member)
        return [
            Turn(each.context, each.sampled, waits_s[index] if turn.message.tool_calls else 0.0)
            for index, (each, turn) in enumerate(zip(to_member(trajectory), trajectory.turns, strict=True))
        ]


def main() -> None:
    """Run what is missing, then print what was predicted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--workers", type=int, default=4, help="arms that run at once")
    parser.add_argument("--output", type=Path, default=Path("runs") / "simulation")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    names = list(dict.fromkeys([CALIBRATION, *arguments.arms]))
    with ProcessPoolExecutor(arguments.workers, mp_context=spawn, initializer=set_pdeathsig) as pool:
        for _ in pool.map(measure, [arguments.output] * len(names), names, [arguments.steps] * len(names)):
            pass
    rows = predict_arms(arguments.output, names, lambda name, groups: PacedWork(groups, ARMS[name].tool_s))
    print(json.dumps(rows, indent=1) if arguments.json else tabulate(rows))


def measure(output: Path, name: str, steps: int) -> None:
    """Run an arm unless it was run before; the machine's load during the run is kept in `load.json`."""
    run = output / folder_of(name)
    if (run / "load.json").exists():
        return
    shutil.rmtree(run, ignore_errors=True)
    before = os.times()
    train(run, ARMS[name].tool_s, ARMS[name].sections(run.name, steps))
    after = os.times()
    busy_s = after.user + after.system - before.user - before.system
    row = {"load": os.getloadavg()[1], "processor_s": busy_s, "wall_s": after.elapsed - before.elapsed}
    (run / "load.json").write_text(json.dumps(row), encoding="utf-8")
    print(json.dumps({"arm": name, **row}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
