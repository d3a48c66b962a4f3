"""Signs in a step's metrics that nothing is being learned."""

from turnwise.pipeline.alarms import describe_alarms


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
