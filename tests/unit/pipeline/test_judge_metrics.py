"""Metrics of judges, and the alarm when one drifts from the truth."""

from dataclasses import replace

import pytest

from turnwise.core.messages import text_message
from turnwise.core.metrics import find_definition, record
from turnwise.core.types import Trajectory
from turnwise.core.verdicts import NOTHING_USED, Judgement, Question, Usage, Verdict
from turnwise.pipeline.drift import Drift
from turnwise.pipeline.judge_metrics import DriftWatch, compute_judge_metrics
from turnwise.testing import make_trajectory


def judged(
    score: float | None, truth: float | None = None, usage: Usage | None = None, seconds: float = 0.0
) -> Judgement:
    usage = usage or Usage()
    verdict = None if score is None else Verdict(score=score, seconds=seconds, usage=usage)
    question = Question(messages=(text_message("user", "x"),))
    return Judgement(judge="grader", question=question, verdict=verdict, usage=usage, truth=truth)


def carry(*judgements: Judgement) -> Trajectory:
    return replace(make_trajectory(), judgements=judgements)


def test_metrics_count_questions_caches_failures_tokens_and_agreement() -> None:
    first = judged(0.5, 1.0, Usage(attempts=3, prompt_tokens=30, reply_tokens=3, cost=0.5), seconds=2.0)
    cached = judged(0.25, 1.0, NOTHING_USED)
    failed = judged(None, 1.0, Usage(attempts=2, prompt_tokens=20, cost=0.25))
    values = record(compute_judge_metrics([carry(first, cached), carry(failed), carry()]))
    assert values == {
        "judge/grader_questions": 3,
        "judge/grader_cached": 1,
        "judge/grader_failures": 4,  # two of three attempts, and two of two
        "judge/grader_unanswered": 1,
        "judge/grader_prompt_tokens": 50,
        "judge/grader_reply_tokens": 3,
        "judge/grader_cost": 0.75,
        "judge/grader_score": 0.375,
        "judge/grader_seconds": 2.0,
        "judge/grader_agreement": 0.5,
        "judge/grader_excess": pytest.approx(-0.625),  # (-0.5 - 0.75) / 2
    }
    assert all(find_definition(name) for name in values)


def test_a_judge_that_agrees_less_than_at_the_beginning_is_an_alarm() -> None:
    watch = DriftWatch()
    right = [judged(1.0, float(number % 10 != 0)) for number in range(20)]  # 0.9 agree
    wrong = [judged(1.0, float(number % 2)) for number in range(20)]  # 0.5
    said = [watch.follow([carry(*right)]) for _ in range(30)]
    assert not any(said)
    again = DriftWatch()
    again.load_state_dict(watch.state_dict())
    later = [again.follow([carry(*wrong)]) for _ in range(20)]
    assert not later[0]
    assert later[-1][0].startswith("alarm: judge 'grader' agrees less with the truth than at the beginning of the run")


def test_a_judge_that_is_mostly_wrong_is_an_alarm_from_the_first_step() -> None:
    # 20 of 60 agree: 0.33 + 3 sqrt(0.33 * 0.67 / 60) = 0.516; 10 of 60: 0.17 + 3 * 0.048 = 0.31
    assert not DriftWatch().follow([carry(*[judged(1.0, 1.0)] * 20, *[judged(1.0, 0.0)] * 40)])
    [alarm] = DriftWatch().follow([carry(*[judged(1.0, 1.0)] * 10, *[judged(1.0, 0.0)] * 50)])
    assert alarm.startswith("alarm: judge 'grader' is on the wrong side of the truth more often than not")


def test_few_questions_or_a_steady_judge_are_no_alarm() -> None:
    watch = DriftWatch()
    assert not watch.follow([carry(*[judged(1.0, 1.0)] * 20, *[judged(1.0, 0.0)] * 20)])
    steady = DriftWatch()
    mixed = [judged(1.0, float(number % 2)) for number in range(40)]
    assert not any(steady.follow([carry(*mixed)]) for _ in range(30))


def test_the_beginning_and_the_latest_do_not_overlap() -> None:
    drift = Drift()
    for _ in range(250):
        drift.add(1.0)
    for number in range(200):
        drift.add(float(number % 2))
    # 450 values: the first 225 are 1, of the latest 225 a hundred are 0: a fall by 100 / 225.
    assert drift.has_fallen()
    again = Drift.restore(drift.state())
    assert (again.num_seen, again.has_fallen()) == (450, True)
    assert not Drift.restore(([1.0] * 400, [1.0] * 400)).has_fallen()  # of an older run
