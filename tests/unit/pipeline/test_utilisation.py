"""Every second of engine and trainer has a cause."""

import math
from pathlib import Path

import pytest
from pipeline_world import Pace, World, WorldFamily, make_config

from turnwise.core.occupancy import Occupancy
from turnwise.pipeline.utilisation import ENGINE, TRAINER


def test_seconds_by_state_add_up() -> None:
    occupancy = Occupancy("idle", 10.0)
    occupancy.switch("busy", 13.0)
    occupancy.switch("idle", 14.5)
    assert occupancy.seconds(20.0) == {"idle": 8.5, "busy": 1.5}
    assert occupancy.seconds(21.0) == {"idle": 9.5, "busy": 1.5}


@pytest.mark.parametrize("staleness", [0, 2])
def test_busy_and_idle_are_all_of_a_steps_time(tmp_path: Path, staleness: int) -> None:
    config = make_config(schedule={"max_staleness": staleness}, train={"steps": 6})
    world = World(path=tmp_path / "run", config=config, pace=Pace(environment_s=0.02, step_s=0.02))
    world.live()
    rows = [row for row in world.read_lines("metrics.jsonl") if row["phase"] == "train"]
    assert len(rows) == 6
    for row in rows:
        for name, states in (("engine", ENGINE), ("trainer", TRAINER)):
            seconds = [row[f"schedule/{name}_{state}_seconds"] for state in states]
            assert min(seconds) >= 0
            assert math.fsum(seconds) == pytest.approx(row["schedule/seconds"], abs=1e-3)
    total = {state: sum(row[f"schedule/engine_{state}_seconds"] for row in rows) for state in ENGINE}
    assert total["sampling"] > 0
    assert total["tools"] > 0
    if staleness == 0:  # while the trainer steps no group may open
        training_s = sum(row["schedule/trainer_training_seconds"] for row in rows[:-1])
        assert total["admission"] > 0.8 * training_s


def test_an_engine_whose_groups_wait_for_the_disk_waits_for_no_tool(tmp_path: Path) -> None:
    world = World(path=tmp_path / "run", config=make_config(), family=WorldFamily(), pace=Pace(environment_s=0.0))
    world.live()
    rows = [row for row in world.read_lines("metrics.jsonl") if row["phase"] == "train"]
    assert sum(row["schedule/engine_annotators_seconds"] for row in rows) > 0
