"""Signs in a step's metrics that nothing is being learned."""

from turnwise.pipeline.alarms import QUIET_STEPS, AlarmWatch, describe_alarms


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
