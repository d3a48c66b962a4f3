"""A run in which nothing moves says who waits for whom."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pipeline_world import World, WorldEnvironment, WorldFamily, WorldRun, make_config

from turnwise.core.batch import StepReport, TrainingBatch
from turnwise.core.metrics import Metric
from turnwise.core.protocols import StepResult
from turnwise.core.types import Message, Task
from turnwise.pipeline import stalls
from turnwise.pipeline.stalls import StallWatch, describe_stall, find_waits


def test_a_stall_is_noticed_once_and_again_after_something_moved() -> None:
    watch = StallWatch(10.0)
    assert [watch.look((1,), now, is_working=False) for now in (0.0, 9.0, 10.0, 30.0)] == [None, None, 10.0, None]
    assert [watch.look((2,), now, is_working=False) for now in (31.0, 40.0, 42.0)] == [None, None, 11.0]


def test_a_step_or_an_evaluation_may_take_longer_and_what_follows_may_not() -> None:
    watch = StallWatch(10.0, 50.0)
    assert [watch.look((1,), now, is_working=True) for now in (0.0, 10.0, 49.0)] == [None, None, None]
    assert [watch.look((1,), now, is_working=False) for now in (52.0, 61.0, 62.0)] == [None, None, 10.0]
    assert [watch.look((1,), now, is_working=True) for now in (63.0, 112.0, 113.0, 200.0)] == [None, None, 50.0, None]


def test_the_graph_names_members_and_what_they_wait_for() -> None:
    members = {3: {0: "its environment", 1: "the engine", 2: "its environment"}, 4: {0: "a rollout slot"}}
    text = describe_stall(120.4, find_waits("unfinished", [3, 4], members, storing=1))
    assert text == (
        "alarm: nothing has moved for 120 s; who waits for whom: the trainer → group 3, group 4 (unfinished); "
        "complete groups → annotators or the disk (1 not stored); group 3, members 0, 2 → its environment (not ended); "
        "group 3, members 1 → the engine (not ended); group 4, members 0 → a rollout slot (not ended); "
        "look at annotators or the disk, its environment, the engine, a rollout slot first"
    )


class Stuck(WorldEnvironment):
    """Sleeps over the first step of task 1 for a second."""

    async def step(self, message: Message) -> StepResult:
        if self._task.payload["index"] == 1:
            await asyncio.sleep(1.0)
        return await super().step(message)


class StuckFamily(WorldFamily):
    def build_environment(self, task: Task) -> WorldEnvironment:
        return Stuck(self, task)


class SlowStepRun(WorldRun):
    """The trainer's step takes 0.8 s."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        trainer = options["trainer"]
        plain = trainer.step

        def step(batch: TrainingBatch) -> StepReport:
            time.sleep(0.8)
            return plain(batch)  # type: ignore[no-any-return]

        trainer.step = step


class SlowEvaluationRun(WorldRun):
    """Evaluations after a step take 0.8 s."""

    async def _after_step(self, step: int) -> dict[str, Metric]:
        await asyncio.sleep(0.8)
        (self.folder.path / f"evaluated_{step}").touch()
        return await super()._after_step(step)


@pytest.mark.parametrize(
    ("run_class", "work"),
    [
        (SlowStepRun, "the run → the trainer's step (training)"),
        (SlowEvaluationRun, "the run → an evaluation or a checkpoint (after_step)"),
    ],
)
@pytest.mark.parametrize(("work_s", "is_stall"), [(60.0, False), (0.3, True)])
def test_the_trainers_work_is_a_stall_only_when_it_is_far_too_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_class: type[WorldRun], work: str, work_s: float, is_stall: bool
) -> None:
    monkeypatch.setattr(stalls.StallWatch.__init__, "__defaults__", (0.3, work_s))
    world = World(path=tmp_path / "run", config=make_config(train={"steps": 2}), run_class=run_class)
    world.live()
    alarms = [line["text"] for line in world.read_lines("events.jsonl") if line["kind"] == "alarm"]
    # On a busy machine anything else may stand still for 0.3 s as well.
    assert any("nothing has moved" in text and work in text for text in alarms) == is_stall


def test_the_last_evaluation_may_outlast_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run does not end before what follows its last step has."""
    monkeypatch.setattr(stalls.StallWatch.__init__, "__defaults__", (0.3, 60.0))
    run = tmp_path / "run"
    World(path=run, config=make_config(train={"steps": 2}), run_class=SlowEvaluationRun).live()
    assert sorted(path.name for path in run.glob("evaluated_*")) == ["evaluated_1", "evaluated_2"]


def test_a_run_that_hangs_in_a_tool_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls.StallWatch.__init__, "__defaults__", (0.3, 60.0))
    world = World(path=tmp_path / "run", config=make_config(train={"steps": 1}), family=StuckFamily())
    world.live()
    alarms = [line["text"] for line in world.read_lines("events.jsonl") if line["kind"] == "alarm"]
    stalled = [text for text in alarms if "nothing has moved" in text]
    assert stalled
    assert "the trainer → group 1" in stalled[0]
    assert "group 1, members 0, 1 → its environment" in stalled[0]
