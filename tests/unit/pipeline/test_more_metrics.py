"""Spread, lengths, tools and engine counts of a step, by hand."""

import math

import pytest

from turnwise.core.metrics import record
from turnwise.core.types import (
    Draw,
    Invalid,
    Reward,
    Scored,
    Task,
    ToolCall,
    ToolRecord,
    Trajectory,
    TrajectoryGroup,
    text_message,
)
from turnwise.pipeline.metrics import compute_length_metrics, compute_spread_metrics
from turnwise.pipeline.tool_metrics import MAX_TOOLS, compute_tool_metrics
from turnwise.pipeline.utilisation import describe_counts
from turnwise.testing import make_trajectory, make_turn

TASK = Task(environment="none", prompt=(text_message("user", "question"),), payload={})


def attempt(member: int, reward: Reward, length: int = 1) -> Trajectory:
    return make_trajectory(make_turn([1, 1], [5] * length), member=member, reward=reward)


def group(*rewards: float | None) -> TrajectoryGroup:
    members = [
        attempt(i, Invalid(reason="hung", retryable=True) if reward is None else Scored(total=reward))
        for i, reward in enumerate(rewards)
    ]
    return TrajectoryGroup(draw=Draw(index=0, task=TASK), trajectories=tuple(members))


def test_spread_inside_groups() -> None:
    # 0 and 1 deviate by 1/2, 2 and 2 by nothing; a group with one scored member says nothing.
    assert record(compute_spread_metrics([group(0, 1), group(2, 2), group(1, None)])) == {
        "rollout/group_reward_std": 0.25
    }
    assert compute_spread_metrics([group(1.0)]) == {}


def test_lengths() -> None:
    attempts = [attempt(i, Scored(total=0.0), length) for i, length in enumerate([*range(1, 20), 100])]
    assert record(compute_length_metrics(attempts)) == {
        "rollout/length_mean": (190 + 100) / 20,
        "rollout/length_p95": 19,
        "rollout/length_max": 100,
        "rollout/total_length_max": 102,
    }
    assert compute_length_metrics([]) == {}


def call(name: str, *, seconds: float = 0.0, error: str | None = None) -> ToolRecord:
    return ToolRecord(
        call=ToolCall(id="c", name=name, arguments="{}"), observation="", error=error, seconds=seconds
    )


def with_calls(*records: ToolRecord) -> Trajectory:
    return make_trajectory(make_turn([1], [5], tool_records=records), member=0, reward=Scored(total=0.0))


def test_tools_have_calls_seconds_and_errors() -> None:
    attempts = [
        with_calls(call("search", seconds=1.0), call("search", seconds=3.0, error="down"), call("serch", error="none")),
        with_calls(call("answer"), call("lookup", error="there is no tool")),
    ]
    assert record(compute_tool_metrics(attempts)) == {
        "tool/answer_calls": 1,
        "tool/answer_seconds": 0,
        "tool/answer_errors": 0,
        "tool/search_calls": 2,
        "tool/search_seconds": 2,
        "tool/search_errors": 0.5,
        "tool/unknown_calls": 2,
        "tool/unknown_seconds": 0,
        "tool/unknown_errors": 1,
    }


def test_very_many_tools_share_metrics() -> None:
    records = [call(f"tool{i:02d}") for i in range(MAX_TOOLS + 3)]
    metrics = record(compute_tool_metrics([with_calls(*records, records[-1])]))
    assert len(metrics) == 3 * (MAX_TOOLS + 1)
    assert metrics["tool/other_calls"] == 3
    assert metrics[f"tool/tool{MAX_TOOLS + 2}_calls"] == 2, "what is called most has its own"
    assert math.fsum(value for name, value in metrics.items() if name.endswith("_calls")) == len(records) + 1


def test_what_an_engine_counted_between_two_readings() -> None:
    before = {"num_computed_tokens": 100, "num_reused_tokens": 10, "num_preemptions": 1, "num_evicted_pages": 0}
    after = {
        "num_computed_tokens": 160,
        "num_reused_tokens": 30,
        "num_preemptions": 1,
        "num_evicted_pages": 4,
        "num_held_pages": 7,
    }
    assert record(describe_counts(before, after)) == {
        "schedule/computed_tokens": 60,
        "schedule/reused_share": pytest.approx(20 / 80),
        "schedule/preemptions": 0,
        "schedule/evicted_pages": 4,
        "schedule/held_pages": 7,
    }
    # A process that was replaced counts from 0.
    assert record(describe_counts({**before, "num_computed_tokens": 500}, after))["schedule/computed_tokens"] == 160
    assert describe_counts({}, {"prompts": 3.0}) == {}


def test_an_engine_that_sees_counts_pictures() -> None:
    counts = dict.fromkeys(("num_computed_tokens", "num_reused_tokens", "num_preemptions", "num_evicted_pages"), 0)
    before = {**counts, "num_held_pages": 0, "computing_s": 2.0, "encode_s": 0.5, "num_encoded_pictures": 3}
    seen = {"computing_s": 4.0, "encode_s": 1.0, "num_encoded_pictures": 5, "num_reused_pictures": 6}
    after = {**before, **seen, "num_image_places": 32}
    measured = record(describe_counts(before, after))
    # 5 - 3 = 2 encoded and 6 known; 0.5 of 2 seconds.
    assert {name: value for name, value in measured.items() if name.startswith("rollout/")} == {
        "rollout/encode_s": 0.5,
        "rollout/encode_share": 0.25,
        "rollout/encoded_pictures": 2,
        "rollout/reused_pictures": 6 / 8,
        "rollout/image_places": 32,
    }
    assert not any(name.startswith("rollout/") for name in describe_counts(after, after)), "no picture was needed"
