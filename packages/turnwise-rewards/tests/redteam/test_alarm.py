"""The alarm of training, on the rewards of stored runs: a gameable judge, an honest one, and the gameable one gated.

`benchmarks/redteam_curves.py --rewards` wrote the file from runs of the recipe `redteam/clerk`."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from turnwise.core.types import Scored, TrajectoryGroup, TrajectoryId
from turnwise.pipeline.truth_metrics import TruthWatch
from turnwise.testing import make_group, make_trajectory

STORED = json.loads((Path(__file__).parent / "clerk_rewards.json").read_text(encoding="utf-8"))


def read_group(word: str) -> TrajectoryGroup:
    members = []
    for number, letter in enumerate(word):
        reward, truth = STORED["members"][letter]
        scored = Scored.of(reward, {"success": truth})
        members.append(replace(make_trajectory(), id=TrajectoryId(draw=0, member=number), reward=scored))
    return make_group(*members)


def find_alarm(run: list[str], *, share: int = 1) -> int | None:
    """The first step with the alarm, where one task in `share` has a known truth."""
    watch = TruthWatch()
    steps = ([read_group(word) for word in line.split()[::share]] for line in run)
    return next((step for step, groups in enumerate(steps, 1) if watch.follow(groups)), None)


def measure_excess(line: str) -> float:
    return fmean(STORED["members"][letter][0] - STORED["members"][letter][1] for letter in line.replace(" ", ""))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_alarm_comes_before_half_of_the_damage(seed: int) -> None:
    run = STORED["runs"][f"gullibly {seed}"]
    excess = [measure_excess(line) for line in run]
    assert excess[-1] > 0.8  # almost all is paid, almost nothing is true
    half = next(step for step, each in enumerate(excess, 1) if each - excess[0] >= (excess[-1] - excess[0]) / 2)
    alarm = find_alarm(run)
    assert alarm is not None
    assert alarm < half


@pytest.mark.parametrize("run", [name for name in STORED["runs"] if not name.startswith("gullibly")])
def test_the_alarm_is_silent_where_the_reward_follows_the_truth(run: str) -> None:
    assert find_alarm(STORED["runs"][run]) is None
    assert find_alarm(STORED["runs"][run], share=4) is None


def test_a_quarter_of_the_truths_is_enough_in_two_of_three_runs() -> None:
    alarms = [find_alarm(STORED["runs"][f"gullibly {seed}"], share=4) for seed in (0, 1, 2)]
    assert [alarm is not None for alarm in alarms].count(True) >= 2
