"""What a sampler is told of a step: which attempts count, and which groups."""

from __future__ import annotations

import math
from typing import Any

import pytest

from turnwise.building.curriculum import build_curriculum
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.metrics import Mean, Sum, record
from turnwise.core.types import Draw, DropReason, Invalid, Reward, Scored, StopReason, TrajectoryGroup
from turnwise.curriculum.curriculum import Curriculum, DrawnTask
from turnwise.curriculum.offered import Offered
from turnwise.testing.builders import make_task, make_trajectory, make_turn


def make_group(draw: int, *rewards: Reward, stops: Any = (), kind: str = "a") -> TrajectoryGroup:
    """A group of draw `draw` at a task of its own."""
    stops = stops or [StopReason.DONE] * len(rewards)
    task = make_task(f"question {draw}", kind=kind)
    members = [
        make_trajectory(make_turn([1], [2]), draw=draw, member=member, reward=reward, stop=stop)
        for member, (reward, stop) in enumerate(zip(rewards, stops, strict=True))
    ]
    return TrajectoryGroup(draw=Draw(index=draw, task=task), trajectories=tuple(members))


def make_curriculum(**sections: Any) -> Curriculum:
    config = RunConfig.model_validate({"curriculum": {"sampler": "difficulty"}, **sections})
    curriculum = build_curriculum(config)
    assert curriculum is not None
    for draw in range(6):
        curriculum.note(draw, DrawnTask(task=draw, pool="new" if draw < 3 else "hard"))
    return curriculum


ONE, ZERO, FAILED = Scored(total=1.0), Scored(total=0.0), Invalid(reason="the tool is down", retryable=False)


def test_an_outage_is_no_failure() -> None:
    curriculum = make_curriculum()
    metrics = record(curriculum.observe(1, [make_group(0, FAILED, FAILED), make_group(1, ONE, FAILED)]))
    assert curriculum.state_dict() == {"pools": {"1": "easy"}}
    assert metrics["curriculum/unscored_groups"] == 1


def test_what_a_limit_cut_off_counts_as_it_trains() -> None:
    group = make_group(0, ONE, ZERO, stops=[StopReason.DONE, StopReason.MAX_TOKENS])
    counted, left_out = make_curriculum(), make_curriculum(rollout={"train_truncated": False})
    for curriculum in (counted, left_out):
        curriculum.observe(1, [group])
    assert counted.state_dict() == {"pools": {"0": "normal"}}
    assert left_out.state_dict() == {"pools": {"0": "easy"}}


def test_dropped_groups_count_but_those_of_lost_weights_do_not() -> None:
    curriculum = make_curriculum()
    dropped = [
        (make_group(4, ZERO, ZERO, kind="b"), DropReason.FILTERED_GROUP),
        (make_group(2, ONE, ONE), DropReason.LOST_VERSION),
    ]
    metrics = curriculum.observe(1, [make_group(0, ONE, ZERO)], dropped)
    assert curriculum.state_dict() == {"pools": {"0": "normal", "4": "hard"}}
    assert metrics["curriculum/pool_share_hard"] == Mean(1, 2)
    assert metrics["curriculum/kind_reward_b"] == Mean(0.0, 1.0)
    assert metrics["curriculum/unscored_groups"] == Sum(0)


def test_numbers_that_are_none_count_as_nothing() -> None:
    curriculum = make_curriculum()
    curriculum._read_rewards = lambda group: [math.nan, math.inf]
    metrics = record(curriculum.observe(1, [make_group(0, ONE)]))
    assert curriculum.state_dict() == {"pools": {}}
    assert metrics["curriculum/unscored_groups"] == 1
    assert "curriculum/pool_reward_new" not in metrics


def test_many_kinds_are_counted_instead_of_listed() -> None:
    curriculum = make_curriculum()
    for draw in range(30):
        curriculum.note(draw, DrawnTask(task=draw, pool="new"))
    metrics = record(curriculum.observe(1, [make_group(draw, ONE, kind=f"kind {draw}") for draw in range(30)]))
    assert metrics["curriculum/kinds"] == 30
    assert not [name for name in metrics if name.startswith("curriculum/kind_")]


def test_a_part_that_no_reward_has_is_named() -> None:
    curriculum = make_curriculum(curriculum={"sampler": "plr", "metric": "sucess"})
    with pytest.raises(ConfigError, match=r"curriculum\.metric='sucess': the reward of task \w+ has no such part"):
        curriculum.observe(1, [make_group(0, ONE)])


def test_kinds_are_told_apart_by_any_field() -> None:
    task = make_task("q", environment="world", kind="a", level=3)
    names = [make_curriculum(curriculum={"sampler": "plr", "by": by}).name_kind(task) for by in ("kind", "level", "no")]
    assert names == ["a", "3", ""]
    assert make_curriculum(curriculum={"sampler": "plr", "by": "environment"}).name_kind(task) == "world"


def test_a_sampler_that_raises_is_named() -> None:
    curriculum = make_curriculum(curriculum={"sampler": f"{__name__}:break_down"})
    with pytest.raises(ConfigError, match=r"curriculum\.sampler='.*break_down': ZeroDivisionError"):
        curriculum.choose(9, Offered(lambda task: ("a", str(task)), first=0))
    odd = make_curriculum(curriculum={"sampler": f"{__name__}:choose_three"})
    with pytest.raises(ConfigError, match="returned 3; it must return a Choice, or None"):
        odd.choose(9, Offered(lambda task: ("a", str(task)), first=0))


def break_down(offered: Any, results: Any, luck: Any) -> int:
    """Raise."""
    return 1 // 0


def choose_three(offered: Any, results: Any, luck: Any) -> int:
    """No choice."""
    return 3
