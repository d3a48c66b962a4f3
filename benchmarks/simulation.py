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
import math
import os
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import schedule

from turnwise.config.load import load_resolved
from turnwise.core.seeds import rng
from turnwise.core.types import TrajectoryGroup
from turnwise.simulation.fit import Fitted, fit_run, read_schedule, to_member
from turnwise.simulation.system import SimulatedRun
from turnwise.simulation.work import Member, Spread, Turn
from turnwise.store.groups import GroupStore
from turnwise.store.ledger import load_accounts
from turnwise.store.run_folder import RunFolder

SLOW, QUICK, LONG = (0.5, 5.0), (0.2, 2.0), (1.0, 5.0)
"""Median and 99th percentile of a search's wait, in seconds."""
CALIBRATION = "synchronous"
WARMUP = ("sft.steps=200", "sft.num_demonstrations=6400")


@dataclass(frozen=True, slots=True)
class Arm:
    """What one run adds to the recipe."""

    latency: tuple[float, float]
    overrides: tuple[str, ...] = ()


ONE, TWO, FOUR = ("schedule.max_staleness=1",), ("schedule.max_staleness=2",), ("schedule.max_staleness=4",)
OVERDRAW = ("schedule.overdraw=2",)
ARMS: Mapping[str, Arm] = {
    CALIBRATION: Arm(SLOW),
    "over-draw 2": Arm(SLOW, OVERDRAW),
    "staleness 1": Arm(SLOW, ONE),
    "staleness 2": Arm(SLOW, TWO),
    "staleness 4": Arm(SLOW, FOUR),
    "staleness 1, late drop": Arm(SLOW, (*ONE, "schedule.late=drop", "schedule.patience_s=0.5")),
    "staleness 1, late cut": Arm(SLOW, (*ONE, "schedule.late=cut", "schedule.patience_s=0.5")),
    "staleness 2, 12 groups open": Arm(SLOW, (*TWO, "schedule.max_open_groups=12")),
    "staleness 2, 64 slots": Arm(SLOW, (*TWO, "rollout.max_open=64")),
    "synchronous, 4 x 16": Arm(SLOW, ("rollout.tasks_per_step=4", "rollout.group_size=16")),
    "staleness 4, 4 x 8": Arm(SLOW, (*FOUR, "rollout.tasks_per_step=4")),
    "long: over-draw 2": Arm(LONG, OVERDRAW),
    "long: staleness 2": Arm(LONG, TWO),
    "quick: synchronous": Arm(QUICK),
    "quick: over-draw 2": Arm(QUICK, OVERDRAW),
    "quick: staleness 1": Arm(QUICK, ONE),
    "quick: staleness 4": Arm(QUICK, FOUR),
    "quick: staleness 1, late drop": Arm(QUICK, (*ONE, "schedule.late=drop", "schedule.patience_s=0.25")),
    "quick: staleness 1, late cut": Arm(QUICK, (*ONE, "schedule.late=cut", "schedule.patience_s=0.25")),
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
    if arguments.train_only:
        return
    calibration = arguments.output / folder_of(CALIBRATION)
    fitted = fit_run(calibration)
    print(f"calibrated on {CALIBRATION!r}: {fitted.costs}", file=sys.stderr)
    rows = [compare(arguments.output / folder_of(name), name, calibration, fitted) for name in arguments.arms]
    print(json.dumps(rows, indent=1) if arguments.json else tabulate(rows))


def folder_of(name: str) -> str:
    """The name of an arm's run folder."""
    return name.replace(" ", "-").replace(",", "").replace(":", "")


def train(output: Path, start: Path, name: str, steps: int) -> None:
    """Train an arm unless it was trained before; the machine's load while it trained stays in `load.json`."""
    import torch

    from turnwise.config.load import dump_resolved, load_config
    from turnwise.runs.build import fit_to_machine
    from turnwise.runs.methods import check_methods
    from turnwise.runs.train import run_train
    from turnwise.store.run_folder import RunFolder

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


# ------------------------------------------------------------------------------------------------ predicted


@dataclass(frozen=True, slots=True)
class SlowWork:
    """Tokens as in a stored run, waits as in `schedule_world.SlowSearch` at another latency. Implements `Work`."""

    groups: Sequence[TrajectoryGroup]
    latency: tuple[float, float]

    def __call__(self, draw: int, member: int) -> Member:
        """See `Work`. Members beyond those stored say what another said and wait for as long as they would."""
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


def compare(run: Path, name: str, calibration: Path, fitted: Fitted) -> dict[str, Any]:
    """What an arm did, and what was predicted from the calibration."""
    real = read_result(run)
    store = GroupStore(calibration)
    work = SlowWork([store.load(draw) for draw in store.list_draws()], ARMS[name].latency)
    config = load_resolved(run / "config.json", [])
    outcome = SimulatedRun(read_schedule(config), fitted.costs, work, steps=config.train.steps).run()
    predicted = {
        "rate": outcome.trajectories_per_s,
        "steady_rate": outcome.steady_rate(schedule.FILL),
        "mean_age": outcome.mean_age,
        "max_age": outcome.max_age,
        "engine_busy": outcome.share(outcome.engine, "sampling"),
        "trainer_idle": outcome.share(outcome.trainer, "unfinished") + outcome.share(outcome.trainer, "deadline"),
    }
    return {"arm": name, "real": real, "predicted": predicted, "load": json.loads((run / "load.json").read_text())}


def read_result(run: Path) -> dict[str, float]:
    """The numbers of a finished run that are predicted."""
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    began = next(event["time"] for event in events if event["kind"] == "parity")  # rollouts start right after it
    accounts = [account for account in load_accounts(run) if account.fate == "trained"]
    store = GroupStore(run)
    sizes = {account.draw: len(store.load(account.draw).trajectories) for account in accounts}
    by_step = Counter({row["step"]: 0 for row in rows})
    for account in accounts:
        by_step[account.step] += sizes[account.draw]
    seconds = rows[-1]["time"] - began
    steady = rows[schedule.FILL : -schedule.FILL]
    ages = [account.version - account.start_version for account in accounts]
    return {
        "rate": by_step.total() / seconds,
        "steady_rate": sum(by_step[row["step"]] for row in steady)
        / (steady[-1]["time"] - rows[schedule.FILL - 1]["time"]),
        "mean_age": statistics.mean(ages),
        "max_age": max(ages),
        "engine_busy": 1 - sum(row["schedule/engine_idle_seconds"] for row in rows) / seconds,
        "trainer_idle": sum(row["schedule/trainer_idle_seconds"] for row in rows) / seconds,
    }


def tabulate(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per arm; errors are predicted over real, less 1."""
    lines = [
        "| arm | trajectories/s: real | predicted | error | steady: real | predicted | error "
        "| age, mean and max: real | predicted | engine busy: real | predicted | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    errors = []
    for row in rows:
        real, predicted = row["real"], row["predicted"]
        error, steady = (predicted[name] / real[name] - 1 for name in ("rate", "steady_rate"))
        errors.append(error)
        cells = [row["arm"], f"{real['rate']:.1f}", f"{predicted['rate']:.1f}", f"{error:+.0%}"]
        cells += [f"{real['steady_rate']:.1f}", f"{predicted['steady_rate']:.1f}", f"{steady:+.0%}"]
        cells += [f"{each['mean_age']:.2f}, {each['max_age']}" for each in (real, predicted)]
        cells += [f"{each['engine_busy']:.0%}" for each in (real, predicted)]
        lines.append(f"| {' | '.join(cells)} | {row['load']['load']:.1f} |")
    sizes = sorted(map(abs, errors))
    within = sum(size <= 0.15 for size in sizes)
    lines.append(f"\n{within} of {len(sizes)} within 15%; mean {statistics.mean(sizes):.1%}, largest {sizes[-1]:.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
