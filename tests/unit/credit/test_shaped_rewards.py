"""What `credit.shaping` makes of rewards, by hand, and what it refuses."""

import math
from typing import Any

import pytest

from turnwise.config.credit import ShapingSection, StageSection
from turnwise.config.load import dump_resolved, load_config
from turnwise.config.run import RunConfig
from turnwise.core.errors import ConfigError
from turnwise.core.types import Scored, ToolCall, ToolRecord, Trajectory
from turnwise.credit.assignment import to_credit_trajectories
from turnwise.credit.shaping import compute_shaped_rewards, read_metric
from turnwise.testing import make_group, make_trajectory, make_turn


def member(index: int, reward: float | None, *, tokens: int = 1, calls: int = 0, **parts: float) -> Trajectory:
    """One reply of so many tokens that made so many calls."""
    call = ToolCall(id="c", name="look", arguments="{}")
    record = ToolRecord(call=call, observation="", error=None, seconds=0.0)
    turn = make_turn([1], range(tokens), tool_records=(record,) * calls)
    return make_trajectory(turn, reward=None if reward is None else Scored.of(reward, parts), member=index)


def shape(members: list[Trajectory], **options: Any) -> list[float | None]:
    return compute_shaped_rewards(make_group(*members), ShapingSection(**options))


def test_overlong_and_gate_by_hand() -> None:
    # 10 tokens at most, buffer 4: 6 cost 0, 8 cost (10 - 4 - 8) / 4 = -0.5, 12 cost the floor -1.
    limits: dict[str, Any] = {"max_tokens": 10, "buffer": 4}
    members = [member(i, 1.0, tokens=n, success=0.0) for i, n in enumerate((6, 8, 12))]
    assert shape([*members, member(3, None)], **limits) == [1.0, 0.5, 0.0, None]
    # Without a success the gate makes them equal; with one the shaped rewards stay.
    assert shape(members, **limits, gate="success") == [0.0, 0.0, 0.0]
    assert shape([*members, member(3, 1.0, success=1.0)], **limits, gate="success") == [1.0, 0.5, 0.0, 1.0]
    # A buffer of 1 is a hard limit: 9 tokens are free, 10 cost 1.
    assert shape([member(i, 1.0, tokens=n) for i, n in enumerate((9, 10))], max_tokens=10, buffer=1) == [1.0, 0.0]


STAGES = {"format": StageSection(weight=0.2), "f1": StageSection(weight=0.3, threshold=0.5), "reward": StageSection()}


def test_stages_take_the_reward_s_place_in_the_order_of_the_table() -> None:
    members = [
        member(0, 1.0, f1=0.5, format=1.0),  # all pass: 0.2 + 0.3 * 0.5 + 1 * 1
        member(1, 1.0, f1=0.4, format=1.0),  # the second fails and counts: 0.2 + 0.3 * 0.4
        member(2, 1.0, f1=1.0, format=0.0),  # the first fails: 0
        member(3, None),
    ]
    shaped = shape(members, stages=STAGES)
    assert shaped[:3] == pytest.approx([1.35, 0.32, 0.0])
    assert shaped[3] is None


def test_few_calls_by_hand() -> None:
    # The fewest calls of a right answer are 1: factors sin(2 pi / 3), 1, and 0 at none.
    members = [
        member(0, 1.0, calls=2, success=1.0),
        member(1, 1.0, calls=1, success=1.0),
        member(2, 0.4, calls=0, success=0.0),
        member(3, None),
    ]
    shaped = shape(members, few_calls=True)
    assert shaped[:3] == pytest.approx([math.sqrt(3) / 2, 1.0, 0.0])
    assert shaped[3] is None
    # Nobody is right: nothing changes.
    assert shape([member(0, 0.4, calls=3, success=0.0)], few_calls=True) == [0.4]


def test_length_reward_by_hand_after_the_factor_for_calls() -> None:
    # Lengths 2, 4, 6: 0.5, 0, -0.5, and 0 instead of 0.5 for the short wrong answer; half of that is added.
    members = [
        member(0, 0.0, tokens=2, calls=1, right=0.0),
        member(1, 1.0, tokens=4, calls=1, right=1.0),
        member(2, 1.0, tokens=6, calls=3, right=1.0),
    ]
    shaped = shape(members, length_weight=0.5, success="right")
    assert shaped == pytest.approx([0.0, 1.0, 0.75])
    # With the factor of 3 calls where 1 is enough, sin(3 pi / 4).
    shaped = shape(members, length_weight=0.5, success="right", few_calls=True)
    assert shaped == pytest.approx([0.0, 1.0, math.sqrt(0.5) - 0.25])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate": "fl"}, r"credit\.shaping\.gate='fl': .* no such part; its parts: success, correctness"),
        ({"stages": {"form": StageSection()}}, r"credit\.shaping\.stages='form': .* no such part"),
        (
            {"stages": {"correctness": StageSection()}},
            r"credit.shaping.stages.correctness: the reward of task \w+ has correctness=-3.0; a stage needs",
        ),
        ({"few_calls": True}, r"credit\.shaping\.few_calls multiplies .* has -2\.0; build .* credit\.shaping\.stages"),
        ({"length_weight": 1.0, "success": "won"}, r"credit\.shaping\.success='won': .* no such part"),
    ],
)
def test_what_cannot_be_shaped_is_refused_by_option_and_part(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        shape([member(0, -2.0, success=0.0, correctness=-3.0)], **options)


def test_a_greedy_baseline_is_shaped_as_what_is_compared_with_it() -> None:
    group = make_group(
        member(0, 1.0, tokens=8, format=1.0, f1=0.0),
        baseline=member(0, 1.0, tokens=8, format=1.0, f1=0.5),
    )
    # 0.2 + 0.3 * 0.5 + 1 * 1 less the overlong punishment of 0.5; the gate looks at the group alone.
    shaping = ShapingSection(stages=STAGES, max_tokens=10, buffer=4, gate="f1")
    [seen] = to_credit_trajectories([group], shaping=shaping)
    assert seen.reward == 0.0
    assert seen.greedy_reward == pytest.approx(0.85)
    for option in ({"few_calls": True}, {"length_weight": 0.1}):
        shaping = ShapingSection(success="format", **option)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=f"{next(iter(option))} compares the members of a group, which a greedy"):
            to_credit_trajectories([group], shaping=shaping)


def test_a_metric_that_is_not_there_is_named_with_those_that_are() -> None:
    members = make_group(member(0, 0.5, success=1.0, f1=0.5), member(1, None))
    assert read_metric(members, "reward", "k") == [0.5, None]
    assert read_metric(members, "f1", "k") == [0.5, None]
    with pytest.raises(ConfigError, match=r"rollout\.x='fl': .* no such part; its parts: success, f1"):
        read_metric(members, "fl", "rollout.x")


def test_the_order_of_stages_is_that_of_the_recipe() -> None:
    stages = {"z_format": {"weight": 0.2}, "answer": {"weight": 0.8, "threshold": 0.5}}
    config = load_config([{"credit": {"shaping": {"stages": stages}}}])
    assert list(config.credit.shaping.stages) == ["z_format", "answer"]
    stored = RunConfig.model_validate_json(RunConfig.model_validate(dump_resolved(config)).model_dump_json())
    assert list(stored.credit.shaping.stages.items()) == [
        ("z_format", StageSection(weight=0.2)),
        ("answer", StageSection(weight=0.8, threshold=0.5)),
    ]
