"""Tabulate real runs and the predictions for them, for `simulation.py` and `simulation_model.py`."""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.building.schedule import read_schedule
from turnwise.config.load import load_resolved
from turnwise.config.run import RunConfig
from turnwise.core.types import TrajectoryGroup
from turnwise.forecast.simulation.costs import Costs
from turnwise.forecast.simulation.fit import fit_run
from turnwise.forecast.simulation.system import SimulatedRun
from turnwise.forecast.simulation.work import Work
from turnwise.store.groups import GroupStore
from turnwise.store.ledger import load_accounts
from turnwise.store.run_folder import RunFolder

FILL = 4
"""Steps at either end that steady rates leave out: the largest staleness."""


CALIBRATION = "synchronous"
"""The arm whose run is the basis for predicting all others."""


def folder_of(name: str) -> str:
    """The name of an arm's run folder."""
    return name.replace(" ", "-").replace(",", "").replace(":", "")


def predict_arms(
    output: Path, names: Sequence[str], build_work: Callable[[str, Sequence[TrajectoryGroup]], Work]
) -> list[dict[str, Any]]:
    """Measure every arm, and predict it from the calibration's run.

    `build_work` makes the work of an arm from the calibration's groups. Prints the costs on standard error."""
    calibration = output / folder_of(CALIBRATION)
    stored = load_resolved(calibration / "config.json")
    fitted = fit_run(calibration, read_schedule(stored), slots=stored.engine.max_concurrency)
    print(f"calibrated on {CALIBRATION!r}: {fitted.costs}", file=sys.stderr)
    store = GroupStore(calibration)
    groups = [store.load(draw) for draw in store.list_draws()]
    rows = []
    for name in names:
        run = output / folder_of(name)
        config = load_resolved(run / "config.json", [])
        rows.append(compare(run, name, config, fitted.costs, build_work(name, groups)))
    return rows


def compare(run: Path, name: str, config: RunConfig, costs: Costs, work: Work) -> dict[str, Any]:
    """Figures of an arm, real and predicted."""
    real = read_result(run)
    outcome = SimulatedRun(read_schedule(config), costs, work, steps=config.train.steps).run()
    predicted = {
        "rate": outcome.trajectories_per_s,
        "steady_rate": outcome.steady_rate(FILL),
        "mean_age": outcome.mean_age,
        "max_age": outcome.max_age,
        "engine_busy": outcome.share(outcome.engine, "sampling"),
        "trainer_idle": outcome.share(outcome.trainer, "unfinished") + outcome.share(outcome.trainer, "deadline"),
    }
    return {"arm": name, "real": real, "predicted": predicted, "load": json.loads((run / "load.json").read_text())}


def read_result(run: Path) -> dict[str, float]:
    """The figures of a finished run that are also predicted."""
    rows = [row for row in RunFolder.open(run).read_metrics() if row["phase"] == "train"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    # Rollouts start immediately after the last of these.
    began = max(event["time"] for event in events if event["kind"] in ("parity", "correction", "device"))
    accounts = [account for account in load_accounts(run) if account.fate == "trained"]
    store = GroupStore(run)
    sizes = {account.draw: len(store.load(account.draw).trajectories) for account in accounts}
    by_step = Counter({row["step"]: 0 for row in rows})
    for account in accounts:
        by_step[account.step] += sizes[account.draw]
    seconds = rows[-1]["time"] - began
    steady = rows[FILL:-FILL]
    ages = [account.version - account.start_version for account in accounts]
    return {
        "rate": by_step.total() / seconds,
        "steady_rate": sum(by_step[row["step"]] for row in steady) / (steady[-1]["time"] - rows[FILL - 1]["time"]),
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
