"""Whether the reward keeps the order of the truth, and the alarm when it does not."""

from dataclasses import replace

import pytest

from turnwise.core.metrics import find_definition, record
from turnwise.core.types import Invalid, Reward, RewardTerm, Scored, TrajectoryGroup, TrajectoryId
from turnwise.pipeline.truth_metrics import TruthWatch, compute_truth_metrics, measure_order
from turnwise.testing import make_group, make_trajectory


def scored(total: float, success: float | None) -> Scored:
    return Scored.of(total, {} if success is None else {"success": success})


def gather(*rewards: Reward, role: str = "agent") -> TrajectoryGroup:
    members = [
        replace(make_trajectory(), id=TrajectoryId(draw=0, member=number, role=role), reward=reward)
        for number, reward in enumerate(rewards)
    ]
    return replace(make_group(), trajectories=tuple(members))


HONEST = gather(scored(1, 1), scored(0.2, 0), scored(0, 0))
GAMED = gather(scored(0.8, 1), scored(1, 0), scored(1, 0))


def test_the_order_counts_pairs_of_attempts_that_differ_in_truth() -> None:
    # true 1.0 beside untrue 1.0, 0.5 and 2.0: half, right, wrong: (0.5 + 1 + 0) / 3
    group = gather(
        scored(1, 1), scored(1, 0), scored(0.5, 0), scored(2, 0), scored(9, None), Invalid(reason="x", retryable=True)
    )
    assert measure_order(group) == pytest.approx(0.5)
    assert measure_order(HONEST) == 1
    assert measure_order(GAMED) == 0
    values = record(compute_truth_metrics([HONEST, GAMED, gather(scored(1, 1), scored(1, 1))]))
    assert values == {"rollout/truth_order": 0.5}
    assert find_definition("rollout/truth_order")


def test_groups_without_a_known_difference_have_no_order() -> None:
    assert measure_order(gather(scored(1, 1), scored(0, 1))) is None
    assert measure_order(gather(scored(1, None), scored(0, 0))) is None
    assert compute_truth_metrics([gather(scored(1, None))]) == {}
    several = gather(scored(1, 1), scored(0, 0))
    other = replace(several.trajectories[1], id=TrajectoryId(draw=0, member=1, role="other"))
    assert measure_order(replace(several, trajectories=(several.trajectories[0], other))) is None
    idle = tuple(replace(t, learns=False) for t in HONEST.trajectories)
    assert measure_order(replace(HONEST, trajectories=idle)) is None


def test_a_reward_that_is_gamed_is_an_alarm_and_an_honest_one_is_none() -> None:
    watch = TruthWatch()
    assert not any(watch.follow([HONEST] * 16) for _ in range(40))
    again = TruthWatch()
    again.load_state_dict(watch.state_dict())
    # of 400 groups 16 a step are gamed: the order falls by 0.04 a step, and by the 0.1 of a drift after three
    said = [bool(again.follow([GAMED] * 16)) for _ in range(4)]
    assert said == [False, False, True, True]


def test_a_part_that_dominates_the_reward_and_no_longer_differs_is_no_alarm() -> None:
    """A bonus for length that every attempt gets is most of the reward, and changes no order."""
    watch = TruthWatch()
    assert not any(watch.follow([gather(scored(0.91, 1), scored(0.9, 0), scored(0.9, 0))] * 16) for _ in range(10))
    assert not any(watch.follow([gather(scored(0.9, 0), scored(0.9, 0))] * 16) for _ in range(10))


def test_an_order_that_is_bad_from_the_beginning_is_an_alarm_once_sixteen_groups_are_known() -> None:
    watch = TruthWatch()
    assert not watch.follow([GAMED] * 15)
    [alarm] = watch.follow([GAMED])
    assert alarm.startswith("alarm: attempts without success are rewarded like those with it, or better")
    assert TruthWatch().state_dict() == {}


def test_beside_rewards_of_the_recipe_the_environment_s_total_is_the_truth() -> None:
    # Two right attempts, of which the vote likes one: right of 0.0, half of 0.0 and 0.0, over 2 * 2 pairs.
    votes = (1.0, 0.0, 0.0, 0.0)
    plain = gather(scored(1, None), scored(1, None), scored(0, None), scored(0, None))
    members = [
        replace(t, terms=(RewardTerm(name="vote", value=vote, contribution=vote),))
        for t, vote in zip(plain.trajectories, votes, strict=True)
    ]
    assert measure_order(replace(plain, trajectories=tuple(members))) == pytest.approx((1 + 1 + 0.5 + 0.5) / 4)
    assert measure_order(plain) is None
