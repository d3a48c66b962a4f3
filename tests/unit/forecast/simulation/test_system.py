"""Simulated runs: times by hand, the bound on ages, and an account of every second."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.forecast.simulation import system
from turnwise.forecast.simulation.costs import Costs, EngineCosts
from turnwise.forecast.simulation.outcome import Outcome
from turnwise.forecast.simulation.system import Schedule, SimulatedRun
from turnwise.forecast.simulation.work import AssumedWork, Member, Spread, Turn, Work
from turnwise.rollout import gate
from turnwise.rollout.gate import AdmissionRule, Late

CONSTANT = Costs(engine=EngineCosts(step_s=0.1), train_s=2.0, publish_s=0.5)
"""An engine that does not notice how many share it."""


def schedule_of(
    batch: int, staleness: int, *, members: int = 1, overdraw: int = 0, late: Late = "wait", patience_s: float = 0.0
) -> Schedule:
    rule = AdmissionRule(
        batch_groups=batch,
        max_staleness=staleness,
        max_open_groups=(staleness + 1) * batch,
        late=late,
        patience_s=patience_s,
    )
    return Schedule(rule=rule, group_size=members, overdraw=overdraw)


def run(schedule: Schedule, costs: Costs, work: Work, steps: int) -> Outcome:
    return SimulatedRun(schedule, costs, work, steps=steps).run()


def ends(outcome: Outcome) -> list[float]:
    return [step.ended_s for step in outcome.steps]


def ten_tokens(draw: int, member: int) -> Member:
    """1 s of the engine, then 1 s of the judge."""
    return (Turn(0, 10, 1.0),)


def test_the_gate_is_that_of_real_runs() -> None:
    assert vars(system)["Gate"] is gate.Gate


def test_a_synchronous_step_is_the_sum_of_its_parts() -> None:
    outcome = run(schedule_of(1, 0), CONSTANT, ten_tokens, steps=2)
    assert ends(outcome) == pytest.approx([4.5, 9.0])
    assert outcome.engine == pytest.approx({"sampling": 2, "tools": 2, "admission": 4, "weights": 1})
    assert outcome.trainer == pytest.approx({"unfinished": 4, "training": 4, "publishing": 1})


def test_two_groups_hide_the_engine_behind_the_trainer() -> None:
    # Two groups end at 2 s. From then on the trainer always has one: 2.5 s per step.
    outcome = run(schedule_of(1, 1), CONSTANT, ten_tokens, steps=4)
    assert ends(outcome) == pytest.approx([4.5, 7.0, 9.5, 12.0])
    assert [step.ages for step in outcome.steps] == [(0,), (1,), (1,), (1,)]


def test_a_batch_waits_for_its_slowest_group_and_over_draw_does_not() -> None:
    def work(draw: int, member: int) -> Member:
        return (Turn(0, 10, 9.0 if member == 2 else 1.0),)

    assert ends(run(schedule_of(2, 0, members=3), CONSTANT, work, steps=1)) == pytest.approx([12.5])
    drawn = run(schedule_of(2, 0, members=2, overdraw=1), CONSTANT, work, steps=1)
    assert ends(drawn) == pytest.approx([4.5])
    assert (drawn.cut_members, drawn.trajectories, drawn.sampled_tokens) == (2, 4, 60)


@pytest.mark.parametrize(("late", "trained", "dropped"), [("cut", 5, 0), ("drop", 6, 1)])
def test_late_groups_are_cut_or_dropped_when_patience_ends(late: Late, trained: int, dropped: int) -> None:
    # One member of group 0 takes 50 s. Group 1 trains first, until 4.5 s, when group 2 opens, which ends at 6.5 s. Then
    # it is group 0 that version 1 must train, and the batch waits for it until 9.5 s.
    def work(draw: int, member: int) -> Member:
        return (Turn(0, 10, 50.0 if draw == member == 0 else 1.0),)

    schedule = schedule_of(1, 1, members=2, late=late, patience_s=3.0)
    outcome = run(schedule, CONSTANT, work, steps=3)
    assert (outcome.trajectories, outcome.dropped_groups, outcome.cut_members) == (trained, dropped, 1)
    assert ends(outcome)[:2] == pytest.approx([4.5, 12.0])
    assert outcome.trainer["deadline"] == pytest.approx(3.0)


def test_a_trainer_on_the_engines_machines_stops_them() -> None:
    outcome = run(schedule_of(1, 0), replace(CONSTANT, colocated=True), ten_tokens, steps=1)
    assert outcome.engine == pytest.approx({"sampling": 1, "tools": 1, "training": 2, "weights": 0.5})


def test_tools_of_one_server_serve_one_after_another() -> None:
    def work(draw: int, member: int) -> Member:
        return (Turn(0, 10, 3.0), Turn(0, 10, 0.0))

    costs = replace(CONSTANT, num_tools=1)
    assert ends(run(schedule_of(1, 0, members=3), costs, work, steps=1)) == pytest.approx([1 + 9 + 1 + 2.5])


def test_what_never_answers_is_named() -> None:
    def work(draw: int, member: int) -> Member:
        return (Turn(0, 10, math.inf if draw == 1 else 1.0), Turn(0, 1))

    expected = (
        "the simulation is stuck at 2.1 s: trainer → group 1 (unfinished); group 1 → member 1/0 (0 ended); "
        "member 1/0 → a tool (turn 2 of 2)"
    )
    with pytest.raises(RuntimeError, match=re.escape(expected)):
        run(schedule_of(2, 0), CONSTANT, work, steps=1)


SEARCHES = AssumedWork(
    prompt=50,
    sampled=Spread(median=60, p99=300),
    turns=3,
    observation=40,
    tool_s=Spread(median=0.3, p99=3.0),
    judge_s=0.05,
)
SYSTEM = Costs(
    engine=EngineCosts(step_s=2e-3, sequence_s=1e-4, attended_s=1e-7, context_s=1e-5, slots=64),
    train_s=0.1,
    train_token_s=2e-5,
    publish_s=0.02,
    finish_s=0.01,
    after_step_s=0.03,
)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 5),
    staleness=st.integers(0, 3),
    members=st.integers(1, 4),
    overdraw=st.integers(0, 2),
    late=st.sampled_from(["wait", "cut", "drop"]),
    patience_s=st.sampled_from([0.0, 0.3]),
    max_open=st.sampled_from([None, 3, 7]),
    num_engines=st.integers(1, 3),
    placement=st.sampled_from(["trajectory", "group", "turn"]),
    num_tools=st.sampled_from([None, 2]),
    colocated=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_no_age_exceeds_the_bound_and_every_second_has_a_cause(
    batch: int, staleness: int, members: int, overdraw: int, late: Late, patience_s: float, max_open: int | None,
    num_engines: int, placement: str, num_tools: int | None, colocated: bool, seed: int,
) -> None:  # fmt: skip
    schedule = schedule_of(batch, staleness, members=members, overdraw=overdraw, late=late, patience_s=patience_s)
    schedule = replace(schedule, max_open=max_open)
    costs = replace(SYSTEM, num_engines=num_engines, placement=placement, num_tools=num_tools, colocated=colocated)  # type: ignore[arg-type]
    work = replace(SEARCHES, seed=seed)
    outcome = run(schedule, costs, work, steps=5)
    assert len(outcome.steps) == 5
    assert all(0 <= age <= staleness for step in outcome.steps for age in step.ages)
    assert math.fsum(outcome.engine.values()) == pytest.approx(outcome.seconds * num_engines)
    assert math.fsum(outcome.trainer.values()) == pytest.approx(outcome.seconds)
    assert sum(step.tokens for step in outcome.steps) <= outcome.sampled_tokens
    assert run(schedule, costs, work, steps=5) == outcome


def test_more_engines_are_never_slower() -> None:
    for seed in range(4):
        work = replace(SEARCHES, seed=seed)
        rates = [
            run(schedule_of(6, staleness, members=4), replace(SYSTEM, num_engines=n), work, steps=6).trajectories_per_s
            for staleness in (0, 2)
            for n in (1, 2, 4, 8)
        ]
        for half in (rates[:4], rates[4:]):
            assert all(later > 0.97 * earlier for earlier, later in pairwise(half)), half
