"""What `[rewards]` adds to trajectories, by hand, and what it refuses."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from turnwise.audit.recredit import find_term_problem
from turnwise.config.credit import ShapingSection
from turnwise.config.rewards import RewardSection
from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.core.judging import EpisodeJudges
from turnwise.core.types import Invalid, RewardTerm, Scored, TrajectoryGroup
from turnwise.core.verdicts import Question, Verdict
from turnwise.credit.annotators import NamedAnnotator, run_annotators
from turnwise.credit.reward_kind import RewardKind, RewardParts
from turnwise.credit.reward_table import FunctionReward, TaskReward, build_reward, find_reward
from turnwise.credit.shaping import compute_shaped_rewards
from turnwise.credit.terms import TermAnnotator
from turnwise.store.rows import trajectory_from_json, trajectory_to_json
from turnwise.testing import make_group, make_trajectory, make_turn


class Given:
    """Returns these values."""

    def __init__(self, values: Any) -> None:
        self.values = values

    async def score(self, group: TrajectoryGroup, judges: EpisodeJudges) -> Any:
        return self.values


def add(group: TrajectoryGroup, values: Any, *, weight: float = 1.0, cap: float | None = None) -> TrajectoryGroup:
    term = TermAnnotator(name="vote", reward=Given(values), weight=weight, cap=cap, judges={})
    return asyncio.run(term.annotate(group))


def group_of(*rewards: float | None) -> TrajectoryGroup:
    turn = make_turn([1], [2])
    return make_group(
        *(
            make_trajectory(turn, member=member, reward=None if reward is None else Scored.of(reward, {"success": 1.0}))
            for member, reward in enumerate(rewards)
        )
    )


def test_terms_replace_the_reward_that_trains_and_leave_the_environment_s() -> None:
    group = add(group_of(1.0, 0.0, 1.0), [0.5, np.float32(2.0), True], weight=0.5, cap=0.6)
    # 0.5 * 0.5; 0.5 * 2 cut at 0.6; 0.5 * 1
    assert group.credited_rewards() == [0.25, 0.6, 0.5]
    assert group.rewards() == [1.0, 0.0, 1.0]
    assert group.trajectories[1].terms == (RewardTerm(name="vote", value=2.0, contribution=0.6),)
    assert compute_shaped_rewards(group, None) == [0.25, 0.6, 0.5]
    # A term is a part of shaping, too; 10 sampled tokens at most are none here.
    assert compute_shaped_rewards(group, ShapingSection(gate="vote")) == [0.0, 0.0, 0.0]
    again = asyncio.run(
        TermAnnotator(name="task", reward=TaskReward(), weight=-1.0, cap=None, judges={}).annotate(group)
    )
    assert again.credited_rewards() == [-0.75, 0.6, -0.5]


def test_without_terms_the_environment_s_reward_trains() -> None:
    assert group_of(1.0, None, 0.25).credited_rewards() == [1.0, None, 0.25]


def test_an_invalid_value_makes_the_reward_invalid_and_an_invalid_reward_stays() -> None:
    group = add(group_of(1.0, None, 1.0), [1.0, math.nan, Invalid(reason="no majority", retryable=False)])
    first, second, third = group.trajectories
    assert first.credited == 1.0
    assert isinstance(second.reward, Invalid)
    assert second.terms == ()
    assert third.reward == Invalid(reason="rewards.vote: no majority", retryable=False)
    assert third.error == "rewards.vote: no majority"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0], "rewards.vote returned [1.0] for 2 trajectories; return a number for each"),
        (None, "rewards.vote returned None for 2 trajectories"),
        ("12", "rewards.vote returned '12' for 2 trajectories"),
        ({"a": 1, "b": 2}, "for 2 trajectories"),
        ([1.0, math.nan], "rewards.vote of trajectory 0/1 is nan, not a finite number"),
        ([1.0, "1"], "rewards.vote of trajectory 0/1 is '1', not a finite number"),
        ([1.0, None], "is None, not a finite number"),
    ],
)
def test_values_are_read_at_one_door(values: Any, said: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        add(group_of(1.0, 1.0), values)
    assert said in str(caught.value)


class Liked:
    """A judge that likes every text."""

    async def judge(self, question: Question) -> Verdict:
        return Verdict(score=0.75)

    async def close(self) -> None: ...


async def ask(group: TrajectoryGroup, judges: EpisodeJudges, factor: float = 1.0) -> list[float]:
    return [factor * (await judges.ask("fan", f"reply {t.id.member}")).score for t in group.trajectories]


def test_a_function_may_ask_judges_and_what_they_said_is_stored_with_the_first_trajectory() -> None:
    term = TermAnnotator(
        name="liked", reward=FunctionReward(ask, {"factor": 2}), weight=1.0, cap=None, judges={"fan": Liked()}
    )
    annotator = NamedAnnotator(name="rewards.liked", annotator=term, timeout_s=60.0, semaphore=asyncio.Semaphore(1))
    group, seconds = asyncio.run(run_annotators(group_of(0.0, 0.0), [annotator]))
    assert group.credited_rewards() == [1.5, 1.5]
    assert [len(t.judgements) for t in group.trajectories] == [2, 0]
    assert list(seconds) == ["rewards.liked"]


def test_terms_survive_the_store() -> None:
    [trajectory] = add(group_of(1.0), [0.1], weight=3.0).trajectories
    row = trajectory_to_json(trajectory)
    assert row["terms"] == [{"name": "vote", "value": 0.1, "contribution": pytest.approx(0.3)}]
    arrays = {name: np.zeros(0) for name in ("context_ids",)}
    assert trajectory_from_json({**row, "turns": []}, arrays).terms == trajectory.terms
    del row["terms"]  # of an older run
    assert trajectory_from_json({**row, "turns": []}, arrays).terms == ()


def parts(**options: Any) -> RewardParts:
    nothing: Any = None
    return RewardParts(name="vote", options=options, family=nothing, renderer=nothing, score=nothing, seed=0)


def lengths(group: TrajectoryGroup, scale: float = 1.0) -> Sequence[float]:
    return [scale * t.num_sampled_tokens for t in group.trajectories]


def test_a_path_names_a_function_or_a_row() -> None:
    section = RewardSection(kind=f"{__name__}:lengths", options={"scale": 0.5})
    reward = build_reward(section, find_reward("vote", section), parts(scale=0.5))
    assert asyncio.run(reward.score(group_of(0.0, 0.0), EpisodeJudges({}))) == [0.5, 0.5]
    assert find_reward("vote", RewardSection(kind=f"{__name__}:ROW")).name == f"{__name__}:ROW"


ROW = RewardKind(name="row", summary="", build=lambda parts: Given([0.0]))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("majorty", "rewards.vote.kind='majorty' is neither one of task"),
        (f"{__name__}:missing", "rewards.vote.kind"),
        (f"{__name__}:math", "rewards.vote.kind"),
    ],
)
def test_a_kind_that_leads_nowhere_is_one_line(kind: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find_reward("vote", RewardSection(kind=kind))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_environment_s_reward_takes_no_options() -> None:
    section = RewardSection(kind="task", options={"weight": 2})
    with pytest.raises(ConfigError, match=r"rewards\.vote\.options: the environment's own reward has none"):
        build_reward(section, find_reward("vote", section), parts(weight=2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"contribution": 0.6}, "term 'vote' contributes 0.6; its weight and cap give 0.5"),
        ({"value": 0.5}, "term 'vote' contributes 0.5; its weight and cap give 0.25"),
        ({"name": "other"}, r"its terms are task, other, and the recipe's [rewards] task, vote"),
    ],
)
def test_the_audit_computes_terms_from_the_recipe(change: dict[str, Any], said: str | None) -> None:
    sections = {"task": RewardSection(kind="task"), "vote": RewardSection(kind="majority", weight=0.5, cap=0.7)}
    [trajectory] = group_of(0.25).trajectories
    task = RewardTerm(name="task", value=0.25, contribution=0.25)
    vote = replace(RewardTerm(name="vote", value=1.0, contribution=0.5), **change)
    reward = Scored(total=0.25)
    assert find_term_problem(replace(trajectory, terms=(task, vote)), reward, sections) == said
    assert find_term_problem(replace(trajectory, terms=(task, vote)), Scored(total=1.0), sections) == (
        said if change.get("name") else "term 'task' has 0.25, and the environment's reward is 1"
    )
    assert find_term_problem(trajectory, reward, {}) is None
