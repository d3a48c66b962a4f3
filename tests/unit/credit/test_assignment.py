"""From trajectories to credit: scores by name, replies the environment never saw, shaping, penalties, refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from turnwise.algorithms.credit_table import build_credit
from turnwise.core.errors import TrainingError
from turnwise.core.types import (
    Completion,
    Draw,
    FinishReason,
    Invalid,
    Reward,
    RewardPart,
    Scored,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    TrajectoryId,
    Turn,
    TurnScores,
    text_message,
    to_floats,
    to_ids,
)
from turnwise.credit.assignment import (
    add_kl_penalty,
    compute_advantages,
    to_credit_trajectories,
)


def turn(num_tokens: int, *, cut: bool = False, state: str | None = None, **scores: float) -> Turn:
    return Turn(
        parent=None,
        context_ids=to_ids([1]),
        completion=Completion(
            token_ids=to_ids(range(num_tokens)),
            logprobs=to_floats(np.full(num_tokens, -0.5)),
            finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP,
            version_first=0,
            version_last=0,
        ),
        message=text_message("assistant", ""),
        scores=TurnScores(**scores),
        state=state,
    )


def member(
    index: int, reward: float | None, *turns: Turn, stop: StopReason = StopReason.DONE, **parts: float
) -> Trajectory:
    judged: Reward = (
        Invalid(reason="broken", retryable=False)
        if reward is None
        else Scored(total=reward, parts=tuple(RewardPart(name=name, value=value) for name, value in parts.items()))
    )
    chained = tuple(replace(t, parent=i - 1 if i else None) for i, t in enumerate(turns))
    return Trajectory(id=TrajectoryId(draw=7, member=index), task_id="t", turns=chained, stop=stop, reward=judged)


def group(*members: Trajectory, **fields: Any) -> TrajectoryGroup:
    task = Task(environment="e", prompt=(text_message("user", "q"),), payload={})
    role = fields.get("role", "agent")
    named = tuple(replace(each, id=replace(each.id, role=role)) for each in members)
    return TrajectoryGroup(draw=Draw(index=7, task=task), trajectories=named, **fields)


def test_scores_of_a_turn_reach_credit_by_name() -> None:
    first = turn(
        2,
        state="s0",
        reward=0.5,
        process_score=0.25,
        progress=1.0,
        potential=3.0,
        state_value=0.75,
        answer_probability=0.1,
        answer_prior=0.05,
    )
    greedy = member(0, 0.5, turn(1))
    [seen] = to_credit_trajectories([group(member(0, 1.0, first, success=1.0), role="buyer", baseline=greedy)])
    assert (seen.group, seen.reward, seen.role, seen.parts) == ("7/buyer", 1.0, "e/buyer", {"success": 1.0})
    assert (seen.greedy_reward, seen.answer_prior) == (0.5, 0.05)
    [only] = seen.turns
    assert (only.num_tokens, only.state, only.reward, only.process_score) == (2, "s0", 0.5, 0.25)
    assert (only.progress, only.potential, only.state_value, only.answer_probability) == (1.0, 3.0, 0.75, 0.1)
    assert only.logprobs is not None
    assert only.logprobs.tolist() == [-0.5, -0.5]


def test_what_was_not_measured_is_none_not_zero() -> None:
    [seen] = to_credit_trajectories([group(member(0, None, turn(1)), baseline=member(0, None, turn(1)))])
    assert (seen.group, seen.role, seen.truncated) == ("7", "e/agent", False)
    assert (seen.reward, seen.greedy_reward, seen.answer_prior) == (None, None, None)
    assert (seen.turns[0].state, seen.turns[0].progress, seen.turns[0].reward) == (None, None, 0.0)


def test_a_reply_the_environment_never_saw_did_nothing() -> None:
    # Turn 1 hit its token limit: no step, no scores. States stay as they were, steps count 0.
    cut = member(0, 0.0, turn(1, potential=2.0, progress=0.5), turn(3, cut=True), stop=StopReason.MAX_TURN_TOKENS)
    alone = member(1, 0.0, turn(3, cut=True), stop=StopReason.MAX_TURN_TOKENS)
    seen, lone = to_credit_trajectories([group(cut, alone)])
    assert seen.truncated
    assert (seen.turns[1].potential, seen.turns[1].progress, seen.turns[1].process_score) == (2.0, 0.0, None)
    assert (lone.turns[0].potential, lone.turns[0].progress) == (0.0, 0.0)


def test_invalid_members_get_no_advantage_and_missing_fields_are_named() -> None:
    groups = [group(member(0, 1.0, turn(2)), member(1, 0.0, turn(1)), member(2, None, turn(1)))]
    seen = to_credit_trajectories(groups)
    advantages = compute_advantages(build_credit("dr_grpo"), groups, seen)
    assert {key: [a.tolist() for a in turns] for key, turns in advantages.items()} == {
        TrajectoryId(draw=7, member=0): [[0.5, 0.5]],
        TrajectoryId(draw=7, member=1): [[-0.5]],
    }
    with pytest.raises(
        TrainingError, match=r"credit\.method='gigpo'.*turn 0: state is missing.*give the environment `state_hash`"
    ):
        compute_advantages(build_credit("gigpo"), groups, seen)


def test_the_kl_penalty_is_a_reward_to_go() -> None:
    # k1 per token: -0.5 - (-1.0) = 0.5, then -0.5 - 0 = -0.5, then -0.5 - (-0.75) = 0.25; penalties with coefficient 2:
    # -1, 1, -0.5.
    scores = {"reference_logprobs": {TrajectoryId(draw=7, member=0): [np.array([-1.0, 0.0]), np.array([-0.75])]}}
    [seen] = to_credit_trajectories([group(member(0, 1.0, turn(2), turn(1)))], scores=scores)  # type: ignore[arg-type]
    got = add_kl_penalty([np.array([10.0, 10.0]), np.array([20.0])], seen, 2.0)
    assert [a.tolist() for a in got] == [[9.5, 10.5], [19.5]]
