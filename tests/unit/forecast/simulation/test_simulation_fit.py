"""Costs read back from runs whose costs are known, and what a run folder says."""

from dataclasses import replace

import pytest

from turnwise.core.errors import DataError
from turnwise.forecast.simulation.costs import Costs, EngineCosts
from turnwise.forecast.simulation.fit import RunTimes, fit_costs, read_times
from turnwise.forecast.simulation.system import Schedule, SimulatedRun
from turnwise.forecast.simulation.work import AssumedWork, Spread, StoredWork, divide
from turnwise.rollout.gate import AdmissionRule

WORK = AssumedWork(
    prompt=60,
    sampled=Spread(median=30, p99=120),
    turns=3,
    observation=30,
    tool_s=Spread(median=0.2, p99=2.0),
)


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_simulated_run_gives_its_own_costs_back(staleness: int) -> None:
    rule = AdmissionRule(batch_groups=4, max_staleness=staleness, max_open_groups=4 * (staleness + 1))
    schedule = Schedule(rule=rule, group_size=6)
    engine = EngineCosts(step_s=4e-3, sequence_s=2e-4, context_s=2e-4)
    costs = Costs(engine=engine, train_token_s=3e-5, publish_s=0.02, finish_s=0.05)
    steps = 8
    draws = {draw: [WORK(draw, member) for member in range(6)] for draw in range(4 * steps)}
    work = StoredWork(draws=draws)
    outcome = SimulatedRun(schedule, costs, work, steps=steps).run()
    share = (steps - 1) / steps
    times = RunTimes(
        steps=steps - 1,
        seconds=outcome.seconds * share,
        engine_busy_s=outcome.engine["sampling"] * share,
        trainer_busy_s=outcome.trainer["training"] * share,
        publish_s=outcome.trainer["publishing"] * share,
        tokens=outcome.trainer["training"] * share / costs.train_token_s,
    )
    fitted = fit_costs(schedule, work, times, reply_s=outcome.engine_s / outcome.num_replies, slots=None)
    found = fitted.costs
    assert found.train_token_s == pytest.approx(3e-5)
    assert found.publish_s == pytest.approx(0.02)
    # A run that nothing but its engine delays tells its numbers well; `finish_s` is what is left over.
    assert found.engine.step_s == pytest.approx(4e-3, rel=0.2)
    assert found.engine.sequence_s == pytest.approx(2e-4, rel=0.2)
    again = SimulatedRun(schedule, found, work, steps=steps).run()
    assert again.seconds == pytest.approx(outcome.seconds, rel=0.03)


def test_times_are_read_from_metrics() -> None:
    idle = {"schedule/trainer_idle_seconds": 2.0, "schedule/engine_idle_seconds": 1.5, "schedule/publish_seconds": 0.5}
    rows = [{"phase": "sft", "step": 1, "time": 1.0}]
    rows += [{"phase": "train", "step": k, "time": 10.0 + 4 * k, "train/tokens": 100.0, **idle} for k in (1, 2, 3)]
    times = read_times(rows)
    assert times == RunTimes(steps=2, seconds=8.0, engine_busy_s=5.0, trainer_busy_s=3.0, publish_s=1.0, tokens=200.0)
    with pytest.raises(DataError, match="2 steps, too few"):
        read_times(rows[:3])


def test_divided_work_is_the_same_work() -> None:
    work = replace(WORK, judge_s=0.7)
    pieces = divide(work, 7)(3, 1)
    whole = work(3, 1)
    assert sum(piece.sampled for piece in pieces) == sum(turn.sampled for turn in whole)
    assert max(piece.sampled for piece in pieces) <= 7
    assert sum(piece.context for piece in pieces) == sum(turn.context for turn in whole)
    assert [piece.wait_s for piece in pieces if piece.wait_s] == [turn.wait_s for turn in whole]


def test_members_of_a_group_are_as_alike_as_was_said() -> None:
    def spread_within(likeness: float) -> float:
        work = AssumedWork(prompt=1, sampled=Spread(median=1000, p99=20_000), likeness=likeness)
        sizes = [[work(draw, member)[0].sampled for member in range(4)] for draw in range(100)]
        return sum(max(group) / min(group) for group in sizes) / 100

    assert spread_within(1.0) == 1.0
    assert 1.0 < spread_within(0.9) < spread_within(0.0) / 2
