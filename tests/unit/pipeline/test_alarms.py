"""Signs in a step's metrics that nothing is being learned."""

from typing import Any

from turnwise.core.types import Invalid, StopReason, ToolCall, ToolRecord, Trajectory
from turnwise.pipeline.alarms import QUIET_STEPS, AlarmWatch, describe_alarms, describe_exceptions, describe_invalid
from turnwise.testing.builders import make_group, make_trajectory, make_turn


def test_identical_members_raise_an_alarm() -> None:
    [alarm] = describe_alarms({"rollout/identical_groups": 1.0})
    assert "ignores the request's seed" in alarm
    assert describe_alarms({"rollout/identical_groups": 0.5}) == []


def test_a_step_that_changes_no_weight_raises_an_alarm() -> None:
    stepped = {"train/grad_norm": 0.5, "train/lr": 1e-3, "train/changed_tensors": 0.0}
    [alarm] = describe_alarms(stepped)
    assert "the optimizer stepped and no weight changed" in alarm
    assert describe_alarms(stepped | {"train/changed_tensors": 3.0}) == []
    assert describe_alarms(stepped | {"train/grad_norm": 0.0}) == [], "no gradient, no change"
    assert describe_alarms({"train/grad_norm": None, "train/lr": 1.0, "train/changed_tensors": 0.0}) == []


def test_groups_without_a_difference_raise_an_alarm() -> None:
    [alarm] = describe_alarms({"credit/no_signal_groups": 1.0})
    assert "nothing to compare" in alarm
    assert describe_alarms({"credit/no_signal_groups": 0.9}) == []
    assert describe_alarms({}) == []


def test_a_step_of_nothing_but_truncated_trajectories_raises_an_alarm() -> None:
    [alarm] = describe_alarms({"rollout/sampled_tokens": 16.0, "dropped/truncated": 16.0})
    assert "train_truncated=false trains none of them" in alarm
    assert describe_alarms({"rollout/sampled_tokens": 16.0, "dropped/truncated": 15.0}) == []
    assert describe_alarms({"rollout/sampled_tokens": 0.0, "dropped/truncated": 0.0}) == []


def record(name: str, exception: str | None = None) -> ToolRecord:
    call = ToolCall(id="c", name=name, arguments="{}")
    return ToolRecord(call=call, observation="", error=exception, seconds=0.0, exception=exception)


def test_an_exception_of_a_tool_that_repeats_is_named_with_its_count() -> None:
    records = [record("query", f"ProgrammingError: thread {number}") for number in range(3)]
    records += [record("query"), record("say", "KeyError: 'x'"), record("say", "KeyError: 'y'")]
    group = make_group(make_trajectory(make_turn([1], [2], tool_records=tuple(records))))
    [(kind, text)] = describe_exceptions([group]).items()
    assert kind == "query ProgrammingError"
    assert "tool 'query' raised ProgrammingError in 3 of 4 calls" in text
    assert "ProgrammingError: thread 0; mend the tool" in text
    assert len(describe_exceptions([group, group])) == 2, "of two groups each kind comes more than twice"


def test_trajectories_without_a_reward_are_told_by_their_commonest_cause() -> None:
    def lost(reason: str, **fields: Any) -> Trajectory:
        return make_trajectory(make_turn([1], [2]), reward=Invalid(reason=reason, retryable=False), **fields)

    group = make_group(
        lost("Own.score: the reward is nan", member=0),
        lost("Own.score: the reward is nan", member=1),
        lost("tool 'x' crashed after 3.5 s", member=2),
        lost("cut", member=3, stop=StopReason.CUT),
        make_trajectory(make_turn([1], [2]), member=4),
    )
    [(kind, text)] = describe_invalid([group]).items()
    assert "3 of 5 trajectories could not be scored and train nothing" in text
    assert "most often (2x): Own.score: the reward is nan" in text
    [other] = describe_invalid([make_group(lost("Own.score: the reward is inf"))])
    assert other != kind
    first, second = (describe_invalid([make_group(lost(f"x ran longer than {s} s"))]) for s in (1.5, 7.25))
    assert first.keys() == second.keys(), "numbers make no new cause"
    assert describe_invalid([make_group(make_trajectory(make_turn([1], [2])))]) == {}


def test_an_alarm_that_comes_and_goes_is_said_once_and_its_end_too() -> None:
    watch, lines = AlarmWatch(), []
    for step in range(1, 41):  # every other step from 3 to 21
        lines += watch.follow(step, ["alarm: nothing differs; change it"] if 3 <= step <= 21 and step % 2 else [])
    assert lines == [
        "step 3: alarm: nothing differs; change it (said once while it lasts)",
        f"step {21 + QUIET_STEPS}: over since step 22: nothing differs (in 10 of 19 steps)",
    ]
    assert watch.follow(50, ["alarm: nothing differs; change it"]), "it is new when it comes back"


def test_another_alarm_is_another_line() -> None:
    watch = AlarmWatch()
    assert len(watch.follow(1, ["alarm: a"])) == 1
    [line] = watch.follow(2, ["alarm: a", "alarm: b"])
    assert line.startswith("step 2: alarm: b")
