"""Costs and work of a simulated system from a stored run.

The work is that of the run's trajectories: tokens by turn, and the seconds that each turn's environment took. The
trainer and the publication take as long as the run's metrics say. An engine has two numbers, the seconds of a step and
those of each token in it, context and sampled alike; they are chosen so that in the simulated run the engine is busy as
long, and replies take as long, as in the real one.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.types import Trajectory
from turnwise.forecast.simulation.costs import Costs, EngineCosts
from turnwise.forecast.simulation.outcome import Outcome
from turnwise.forecast.simulation.system import Schedule, SimulatedRun
from turnwise.forecast.simulation.work import Member, StoredWork, Turn
from turnwise.store.groups import GroupStore
from turnwise.store.run_folder import RunFolder

MIN_STEPS = 3
"""Minimum number of steps of a run from which step times can be derived."""
ROUNDS = 12
"""Maximum number of corrections of the engine's two numbers."""
TOLERANCE = 0.005
"""Relative error of busy time and reply time at which the corrections end."""
NUDGE, LARGEST = 0.1, 1.0
"""Change of a number's logarithm that measures its effect, and the largest correction."""


Pair = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """How a run spent its seconds, from its metrics: sums over all steps but the first, whose start is not recorded."""

    steps: int
    seconds: float
    engine_busy_s: float
    trainer_busy_s: float
    publish_s: float
    tokens: float
    """Tokens of the trajectories that trained, context included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The system that a run ran on, as derived from the run."""

    schedule: Schedule
    costs: Costs
    work: StoredWork
    steps: int


def read_times(rows: list[dict[str, Any]]) -> RunTimes:
    """Sums over the metrics of training steps. Raises DataError for fewer than `MIN_STEPS` steps."""
    rows = [row for row in rows if row["phase"] == "train"]
    if len(rows) < MIN_STEPS:
        raise DataError(f"the run has {len(rows)} steps, too few to estimate times from; train at least {MIN_STEPS}")
    rest = rows[1:]
    seconds = rest[-1]["time"] - rows[0]["time"]

    def total(name: str) -> float:
        return math.fsum(row.get(name) or 0.0 for row in rest)

    publish_s = total("schedule/publish_seconds")
    return RunTimes(
        steps=len(rest),
        seconds=seconds,
        engine_busy_s=seconds - total("schedule/engine_idle_seconds"),
        trainer_busy_s=seconds - total("schedule/trainer_idle_seconds") - publish_s,
        publish_s=publish_s,
        tokens=total("train/tokens"),
    )


def read_reply_seconds(run: Path) -> float:
    """Mean seconds from the request of a reply to its end, over the members of all stored groups."""
    store = GroupStore(run)
    groups = (store.load(draw) for draw in store.list_draws())
    return statistics.fmean(turn.engine_s for group in groups for t in group.trajectories for turn in t.turns)


def read_work(run: Path) -> StoredWork:
    """The trajectories of a run's stored groups, in the order of their draws. Raises DataError if there is none."""
    store = GroupStore(run)
    groups = [store.load(draw) for draw in store.list_draws()]
    members = [[to_member(t) for t in group.trajectories if t.turns] for group in groups]
    draws = dict(enumerate(each for each in members if each))
    if not draws:
        raise DataError(f"{run} has no stored groups; use the folder of a training run")
    return StoredWork(draws=draws)


def to_member(trajectory: Trajectory) -> Member:
    """The work of a stored trajectory, at least one turn, with the measured seconds."""
    return tuple(
        Turn(len(turn.context_ids), len(turn.completion.token_ids), turn.environment_s) for turn in trajectory.turns
    )


def fit_run(run: Path, schedule: Schedule, *, slots: int) -> Fitted:
    """Derive the system of a stored run, which followed `schedule` with an engine of `slots` slots. Raises DataError
    for a run that is too short."""
    return fit_costs(
        schedule,
        read_work(run),
        read_times(RunFolder.open(run).read_metrics()),
        reply_s=read_reply_seconds(run),
        slots=slots,
    )


def fit_costs(schedule: Schedule, work: StoredWork, times: RunTimes, *, reply_s: float, slots: int | None) -> Fitted:
    """The costs under which `work`, simulated under `schedule`, takes as long as the run. `reply_s` is the mean time
    from a reply's request to its end."""
    costs = Costs(
        engine=EngineCosts(step_s=1e-3, sequence_s=1e-5, context_s=1e-5, slots=slots),
        train_token_s=times.trainer_busy_s / max(1.0, times.tokens),
        publish_s=times.publish_s / times.steps,
    )
    num_steps = times.steps + 1
    busy_s = times.engine_busy_s / times.steps

    def measure(costs: Costs) -> tuple[Outcome, float, float]:
        """Logarithms of busy seconds and of a reply's seconds, simulated over real."""
        outcome = SimulatedRun(schedule, costs, work, steps=num_steps).run()
        busy = outcome.engine.get("sampling", 0.0) / num_steps
        return outcome, math.log(busy / busy_s), math.log(outcome.engine_s / outcome.num_replies / reply_s)

    for _ in range(ROUNDS):
        outcome, busy, reply = measure(costs)
        if max(abs(busy), abs(reply)) < TOLERANCE:
            break
        _, busy_a, reply_a = measure(_scale(costs, NUDGE, 0.0))
        _, busy_b, reply_b = measure(_scale(costs, 0.0, NUDGE))
        slopes = ((busy_a - busy, busy_b - busy), (reply_a - reply, reply_b - reply))
        costs = _scale(costs, *_newton(slopes, (busy, reply)))
    idle = sum(outcome.trainer.get(state, 0.0) for state in ("unfinished", "deadline")) / num_steps
    real = (times.seconds - times.trainer_busy_s - times.publish_s) / times.steps
    costs = replace(costs, finish_s=max(0.0, real - idle))
    return Fitted(schedule=schedule, costs=costs, work=work, steps=num_steps)


def _scale(costs: Costs, step: float, token: float) -> Costs:
    """The costs with the engine's two numbers multiplied by the exponentials of these."""
    engine = costs.engine
    token_s = engine.sequence_s * math.exp(token)
    changed = replace(engine, step_s=engine.step_s * math.exp(step), sequence_s=token_s, context_s=token_s)
    return replace(costs, engine=changed)


def _newton(slopes: tuple[Pair, Pair], values: Pair) -> Pair:
    """A Newton step for two functions of two numbers, with `slopes` per `NUDGE`; at most `LARGEST` in either
    direction."""
    (a, b), (c, d) = slopes
    determinant = a * d - b * c
    if abs(determinant) < 1e-9:  # one of the numbers has no effect: correct the other
        return -math.copysign(min(abs(values[0]), LARGEST), values[0]), 0.0
    x = -NUDGE * (d * values[0] - b * values[1]) / determinant
    y = -NUDGE * (a * values[1] - c * values[0]) / determinant
    return max(-LARGEST, min(LARGEST, x)), max(-LARGEST, min(LARGEST, y))
