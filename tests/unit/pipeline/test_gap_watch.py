"""The alarm about a reward that rises while the environment's falls: when it is raised, and when not."""

import json
import math
from random import Random

import pytest

from turnwise.core.types import RewardTerm, TrajectoryGroup
from turnwise.pipeline.gap_watch import ALARM, FEWEST, MOST, GapWatch, measure_rise
from turnwise.testing.builders import make_group, make_trajectory


def group_of(random: Random, own: float, credited: float, *, learns: bool = True) -> TrajectoryGroup:
    """Eight members that get 1 with these probabilities, from the environment and from the terms."""
    return make_group(
        *(
            make_trajectory(
                reward=float(random.random() < own),
                member=member,
                learns=learns,
                terms=(RewardTerm(name="vote", value=0.0, contribution=float(random.random() < credited)),),
            )
            for member in range(8)
        )
    )


def find_alarms(
    own: tuple[float, float], credited: tuple[float, float], *, seed: int = 0, steps: int = 30, learns: bool = True
) -> list[int]:
    """Steps of ten groups with an alarm, of a run in which both rewards change evenly from one value to another."""
    watch, random, alarms = GapWatch(), Random(seed), []
    for step in range(steps):
        at = step / (steps - 1)
        values = [before + at * (after - before) for before, after in (own, credited)]
        groups = [group_of(random, values[0], values[1], learns=learns) for _ in range(10)]
        if watch.follow(groups):
            alarms.append(step)
    return alarms


@pytest.mark.parametrize("seed", range(3))
def test_an_even_fall_is_noticed_before_its_half(seed: int) -> None:
    alarms = find_alarms((0.3, 0.0), (0.5, 1.0), seed=seed)
    assert alarms[0] < 15
    assert alarms == [*range(alarms[0], 30)], "and it lasts"


def test_nothing_else_is_an_alarm() -> None:
    for seed in range(2):
        assert find_alarms((0.5, 1.0), (0.5, 1.0), seed=seed) == [], "both rise"
        assert find_alarms((0.5, 0.1), (0.9, 0.4), seed=seed) == [], "both fall"
        assert find_alarms((0.3, 0.3), (0.5, 1.0), seed=seed) == [], "the environment's stays"
        assert find_alarms((0.3, 0.3), (0.5, 0.5), seed=seed) == [], "nothing changes"
        assert find_alarms((0.0, 0.0), (0.5, 1.0), seed=seed) == [], "the environment knows no reward"
    assert find_alarms((0.3, 0.0), (0.5, 1.0), learns=False) == []


def test_few_groups_are_no_evidence() -> None:
    watch, random = GapWatch(), Random(0)
    for place in range(3 * FEWEST - 1):
        worse = place >= FEWEST
        assert watch.follow([group_of(random, 0.0 if worse else 1.0, 1.0 if worse else 0.0)]) == []
    assert watch.follow([group_of(random, 0.0, 1.0)]) == [ALARM]


def test_the_first_and_the_last_groups_never_overlap() -> None:
    watch, random = GapWatch(), Random(0)
    watch.follow([group_of(random, 0.9, 0.1) for _ in range(MOST)])
    for _ in range(30):  # from 200 groups to 500: a third is 67 to 166
        alarms = watch.follow([group_of(random, 0.1, 0.9) for _ in range(10)])
    assert alarms == [ALARM]
    assert watch.follow([group_of(random, 0.95, 0.9) for _ in range(MOST)]) == [], "the latest are as good again"


def test_groups_without_terms_or_scores_are_not_counted() -> None:
    watch = GapWatch()
    for own in (1.0, 0.0):
        groups = [make_group(make_trajectory(reward=own), make_trajectory(reward=None, member=1))] * 100
        assert watch.follow(groups) == []
    assert watch.state_dict() == {}


def test_a_continued_run_goes_on_with_what_it_saw() -> None:
    watch, random = GapWatch(), Random(1)
    watch.follow([group_of(random, 0.9, 0.1) for _ in range(FEWEST)])
    continued = GapWatch()
    continued.load_state_dict(json.loads(json.dumps(watch.state_dict())))
    later = [group_of(random, 0.1, 0.9) for _ in range(2 * FEWEST)]
    assert continued.follow(later) == watch.follow(later) == [ALARM]
    assert continued.state_dict() == watch.state_dict()


def test_the_rise_in_standard_errors_by_hand() -> None:
    # means 1 and 4, variances 2 and 2, of two values each: 3 / sqrt(2/2 + 2/2)
    assert measure_rise([0.0, 2.0], [3.0, 5.0]) == pytest.approx(3 / 2**0.5)
    assert measure_rise([1.0, 1.0], [1.0, 1.0]) == 0.0
    assert measure_rise([1.0, 1.0], [0.0, 0.0]) == -math.inf
