"""Metrics as Prometheus reads them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from turnwise.reporting.trackers.prometheus import format_metrics
from turnwise.reporting.trackers.registry import build_tracker
from turnwise.reporting.trackers.tracker import Point, TrackedRun

EXPECTED = """\
# HELP turnwise_reward_a_b A part of the reward, over trajectories with a Scored reward. (reward)
# TYPE turnwise_reward_a_b gauge
turnwise_reward_a_b{run="a \\"b\\"\\\\"} 0.25
# HELP turnwise_train_seconds Wall time of the training phase. (s)
# TYPE turnwise_train_seconds gauge
turnwise_train_seconds{run="a \\"b\\"\\\\"} 3.0
"""


def test_names_helps_and_labels_are_escaped() -> None:
    assert format_metrics({"train/seconds": 3.0, "reward/a-b": 0.25}, run='a "b"\\') == EXPECTED


def test_the_file_has_the_last_value_of_every_metric(tmp_path: Path) -> None:
    tracker = build_tracker("prometheus")
    id = tracker.open(TrackedRun(path=tmp_path, recipe=cast(Any, SimpleNamespace())), None)
    tracker.log(Point(number=0, step=1, time=10.0, values={"train/loss": 1.0, "train/lr": 0.5}))
    tracker.log(Point(number=1, step=2, time=20.0, values={"train/loss": 2.0}))
    tracker.flush()
    lines = Path(id).read_text().splitlines()
    assert {line.split("{")[0] for line in lines if line[0] != "#"} == {
        "turnwise_train_loss",
        "turnwise_train_lr",
        "turnwise_step",
        "turnwise_time",
    }
    label = f'{{run="{tmp_path.name}"}}'
    assert f"turnwise_train_loss{label} 2.0" in lines
    assert f"turnwise_train_lr{label} 0.5" in lines
    assert f"turnwise_step{label} 2" in lines
