"""Predict every schedule of a recipe on one system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from turnwise.forecast.simulation.costs import Costs
from turnwise.forecast.simulation.outcome import Outcome
from turnwise.forecast.simulation.system import Schedule, SimulatedRun
from turnwise.forecast.simulation.work import Work
from turnwise.rollout.gate import AdmissionRule

FILL = 5
"""Number of steps at either end that rates leave out: one more than the largest staleness."""
STEPS = 24
"""Number of simulated steps per schedule."""
MOST_TRAJECTORIES = 200_000
"""Maximum trajectories simulated per schedule: with large batches fewer steps are simulated, at least `4 * FILL`,
because batches come in bursts of one more than the staleness, and rates are measured over two bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schedule with a name, and the system it runs on."""

    name: str
    schedule: Schedule
    costs: Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The prediction for a candidate, in its steady state."""

    candidate: Candidate
    outcome: Outcome

    @property
    def rate(self) -> float:
        """Trained trajectories per second."""
        return self.outcome.steady_rate(FILL)

    @property
    def token_rate(self) -> float:
        """Tokens per second that are sampled and train."""
        tokens = sum(step.tokens for step in self.outcome.steps)
        return self.rate * tokens / self.outcome.trajectories


def list_schedules(base: Schedule) -> Iterator[tuple[str, Schedule]]:
    """The recipe's batches under every kind of schedule, each with a name."""

    def build(max_staleness: int, **rest: object) -> AdmissionRule:
        most = (max_staleness + 1) * base.rule.batch_groups
        return replace(base.rule, max_staleness=max_staleness, max_open_groups=most, **rest)  # type: ignore[arg-type]

    after = f"after {base.rule.patience_s:g} s"
    extra = max(1, base.group_size // 4)
    yield "synchronous", replace(base, rule=build(0, late="wait"), overdraw=0)
    yield f"synchronous, over-draw {extra}", replace(base, rule=build(0, late="wait"), overdraw=extra)
    for staleness, name in ((1, "overlap"), (2, "staleness 2"), (4, "staleness 4")):
        yield name, replace(base, rule=build(staleness, late="wait"), overdraw=0)
    if base.group_size > 1:
        yield f"overlap, late cut {after}", replace(base, rule=build(1, late="cut"), overdraw=0)
    yield f"overlap, late drop {after}", replace(base, rule=build(1, late="drop"), overdraw=0)


def compare_schedules(
    base: Schedule, work: Work, *, together: Costs | None, apart: Costs, steps: int | None = None
) -> Iterator[Prediction]:
    """Simulate every schedule on the same work.

    Args:
        base: the recipe's schedule; batches, patience and slots are taken from it.
        work: the trajectories.
        together: the system whose trainer shares the engines' machines, on which synchronous schedules run too; None
            leaves it out.
        apart: the system whose trainer has separate machines.
        steps: of each run; None chooses by the size of a batch.
    """
    batch = base.rule.batch_groups * base.group_size
    steps = steps or max(4 * FILL, min(STEPS, MOST_TRAJECTORIES // batch))
    for name, schedule in list_schedules(base):
        if together is not None and not schedule.rule.max_staleness:
            yield _predict(Candidate(name=f"{name}, shared GPUs", schedule=schedule, costs=together), work, steps)
        yield _predict(Candidate(name=name, schedule=schedule, costs=apart), work, steps)


def _predict(candidate: Candidate, work: Work, steps: int) -> Prediction:
    run = SimulatedRun(candidate.schedule, candidate.costs, work, steps=steps)
    return Prediction(candidate=candidate, outcome=run.run())


def describe_prediction(prediction: Prediction, *, num_gpus: int, price: float | None) -> dict[str, Any]:
    """The numbers of a predicted schedule, as plain data. `num_gpus` 0 leaves out costs, `price` None leaves out
    money."""
    outcome = prediction.outcome
    row: dict[str, Any] = {
        "schedule": prediction.candidate.name,
        "trajectories_per_s": prediction.rate,
        "sampled_tokens_per_s": prediction.token_rate,
        "mean_age": outcome.mean_age,
        "max_age": outcome.max_age,
        "engine": {state: outcome.share(outcome.engine, state) for state in sorted(outcome.engine)},
        "trainer": {state: outcome.share(outcome.trainer, state) for state in sorted(outcome.trainer)},
        "dropped_groups": outcome.dropped_groups,
        "cut_members": outcome.cut_members,
    }
    if num_gpus:
        per_million = num_gpus / prediction.rate * 1e6 / 3600
        row["gpu_hours_per_million"] = per_million
        if price is not None:
            row["price_per_million"] = per_million * price
    return row
