"""The pipeline with everything real but the model: order, staleness, refills, failures, and what a stop leaves."""

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pipeline_world import Pace, World, WorldFamily, WorldSync, WorldTrainer, make_config, read_story

from turnwise.core.batch import Receipt, StepReport, TrainingBatch
from turnwise.core.errors import DataError, EngineError, EnvironmentFault, TrainingError
from turnwise.core.types import DropReason, Task
from turnwise.store.groups import GroupStore
from turnwise.store.run_folder import RunFolder


@pytest.fixture(autouse=True)
def _forget_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


def make_world(path: Path, sections: dict[str, dict[str, Any]] | None = None, **changes: Any) -> World:
    return World(path=path, config=make_config(**(sections or {})), **changes)


def check_audit(world: World) -> None:
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]


def test_synchronous_order(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run")
    world.live()
    is_training = False
    for row in world.read_lines("journal.jsonl"):
        assert not (is_training and row["kind"] == "opened")
        is_training = (is_training or row["kind"] == "taken") and row["kind"] != "trained"
    assert dict(world.journal.taken) == {1: (0, 1), 2: (2, 3), 3: (4, 5), 4: (6, 7)}
    check_audit(world)


def test_timing_changes_nothing_in_synchronous_training(tmp_path: Path) -> None:
    slow = make_world(tmp_path / "slow", pace=Pace(seed=5, token_s=0.003, environment_s=0.01))
    fast = make_world(tmp_path / "fast", pace=Pace(seed=6, token_s=0, environment_s=0, step_s=0))
    slow.live()
    fast.live()
    assert read_story(slow) == read_story(fast)


@pytest.mark.parametrize("staleness", [1, 2, 4])
def test_ages_reach_the_bound_and_never_exceed_it(tmp_path: Path, staleness: int) -> None:
    sections = {"schedule": {"max_staleness": staleness}, "train": {"steps": 10}}
    world = make_world(tmp_path / "run", sections, pace=Pace(step_s=0.02))
    world.live()
    rows = world.read_lines("ledger.jsonl")
    assert max(row["version"] - row["start_version"] for row in rows) == staleness
    assert len(rows) == world.journal.next_draw == 20  # 10 steps of 2: nothing was opened that could not train
    check_audit(world)


@pytest.mark.parametrize("staleness", [0, 2])
def test_groups_are_on_disk_before_a_weight_changes(
    tmp_path: Path, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: set[int] = set()
    write = GroupStore._write
    trained: list[int] = []
    world = make_world(tmp_path / "run", {"schedule": {"max_staleness": staleness}})
    step = WorldTrainer.step

    def write_slowly(store: GroupStore, draw: int, npz: bytes, jsonl: bytes) -> str:
        assert threading.current_thread() is not threading.main_thread()  # where the event loop runs
        time.sleep(0.02)
        digest = write(store, draw, npz, jsonl)
        on_disk.add(draw)
        return digest

    def check(trainer: WorldTrainer, batch: TrainingBatch) -> StepReport:
        draws = world.journal.taken[batch.step]
        assert on_disk.issuperset(draws)
        trained.extend(draws)
        return step(trainer, batch)

    monkeypatch.setattr(GroupStore, "_write", write_slowly)
    monkeypatch.setattr(WorldTrainer, "step", check)
    world.live()
    assert sorted(trained) == list(range(8))  # 4 steps of 2


@pytest.mark.parametrize("refill", ["new", "value"])
@pytest.mark.parametrize("staleness", [0, 2])
def test_filtered_groups_are_refilled_within_the_budget(tmp_path: Path, refill: str, staleness: int) -> None:
    dynamic = {"metric": "reward", "max_batches": 3, "refill": refill}
    sections: dict[str, dict[str, Any]] = {
        "rollout": {"dynamic_sampling": dynamic},
        "schedule": {"max_staleness": staleness},
    }
    world = make_world(tmp_path / "run", {**sections, "train": {"steps": 8}})
    world.live()
    rows = world.read_lines("ledger.jsonl")
    assert {row["fate"] for row in rows} == {"trained", "filtered_group"}
    if staleness == 0:
        assert max(sum(row["step"] == step for row in rows) for step in range(1, 9)) <= 6  # 3 batches of 2
        assert len(rows) == world.journal.next_draw
    check_audit(world)


@pytest.mark.parametrize("staleness", [0, 2])
def test_steps_without_anything_to_learn_from_leave_the_weights(tmp_path: Path, staleness: int) -> None:
    dynamic = {"metric": "reward", "max_batches": 2}
    sections: dict[str, dict[str, Any]] = {
        "rollout": {"dynamic_sampling": dynamic},
        "schedule": {"max_staleness": staleness},
    }
    world = make_world(tmp_path / "run", sections, family=WorldFamily(success=0.0))
    world.live()
    assert all(draws == () for draws in world.journal.taken.values())
    assert len({tuple(sums.items()) for sums in world.sums().values()}) == 1
    check_audit(world)


def test_how_many_groups_a_step_draws_does_not_depend_on_which_end_together(tmp_path: Path) -> None:
    dynamic = {"metric": "reward", "max_batches": 3}
    sections: dict[str, dict[str, Any]] = {"rollout": {"dynamic_sampling": dynamic}, "train": {"steps": 12}}
    world = make_world(tmp_path / "run", sections, family=WorldFamily(success=0.0), pace=Pace(environment_s=0.0))
    world.live()
    drawn = Counter(row["step"] for row in world.read_lines("ledger.jsonl"))
    assert drawn == dict.fromkeys(range(1, 13), 3 * 2)  # three batches of two, all filtered


def test_a_budget_of_one_batch_leaves_groups_to_sample_ahead(tmp_path: Path) -> None:
    sections: dict[str, dict[str, Any]] = {
        "rollout": {"dynamic_sampling": {"metric": "reward", "max_batches": 1}},
        "schedule": {"max_staleness": 2},
        "train": {"steps": 8},
    }
    world = make_world(tmp_path / "run", sections, pace=Pace(step_s=0.05))
    world.live()
    records = [each for each in world.journal.draws.values() if each.fate == "taken"]
    # Some were opened while an earlier step trained.
    assert any(each.step is not None and each.version < each.step - 1 for each in records)
    check_audit(world)


@pytest.mark.parametrize("late", ["cut", "drop"])
def test_late_groups_are_cut_or_dropped(tmp_path: Path, late: str) -> None:
    sections: dict[str, dict[str, Any]] = {
        "schedule": {"max_staleness": 1, "late": late, "patience_s": 0.0, "min_members": 1, "overdraw": 1},
        "train": {"steps": 6},
    }
    world = make_world(tmp_path / "run", sections, pace=Pace(environment_s=0.03))
    world.live()
    check_audit(world)


def test_many_failures_stop_the_run_and_it_goes_on_when_they_are_mended(tmp_path: Path) -> None:
    def fail(task: Task) -> None:
        if task.payload["index"] >= 4:
            raise OSError("the tool server is gone")

    world = make_world(tmp_path / "run", {"train": {"steps": 4, "checkpoint_every": 1}})
    world.family.misbehave = fail
    with pytest.raises(EnvironmentFault, match=r"4 of 4 trajectories.*most often \(4x\).*the tool server is gone"):
        world.live()
    assert sorted(world.journal.trained) == [1, 2]
    world.family.misbehave = lambda task: None
    world.live()
    assert sorted(world.journal.trained) == [1, 2, 3, 4]
    check_audit(world)


def test_a_receipt_with_another_digest_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path / "run", {"schedule": {"max_staleness": 2}})
    publish = WorldSync.publish

    async def lie(self: WorldSync, version: int) -> Receipt:
        receipt = await publish(self, version)
        return Receipt(version=version, sums={**receipt.sums, "first": 1}, seconds=0.0) if version == 2 else receipt

    with monkeypatch.context() as patch:
        patch.setattr(WorldSync, "publish", lie)
        with pytest.raises(EngineError, match="the values of first in version 2"):
            world.live()
    sums = world.sums()
    world.live()
    assert {step: world.sums()[step] for step in sums} == sums
    assert sorted(sums) == [1, 2]
    check_audit(world)


def test_a_trainer_that_raises_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(tmp_path / "run", {"schedule": {"max_staleness": 2}})
    step = WorldTrainer.step

    def refuse(self: WorldTrainer, batch: Any) -> Any:
        if batch.step == 3:
            raise TrainingError("the loss is not finite")
        return step(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(WorldTrainer, "step", refuse)
        with pytest.raises(TrainingError, match="not finite"):
            world.live()
    before = world.journal
    world.live()
    assert not world.sampled_draws() & {r.draw for r in before.draws.values() if r.digest is not None}
    check_audit(world)


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_batch_that_never_trains_is_dropped_when_the_run_is_continued(
    tmp_path: Path, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections: dict[str, dict[str, Any]] = {
        "schedule": {"max_staleness": staleness},
        "rollout": {"dynamic_sampling": {"metric": "reward"}},
    }
    world = make_world(tmp_path / "run", sections)
    step = WorldTrainer.step
    bad: list[set[str]] = []

    def refuse(self: WorldTrainer, batch: TrainingBatch) -> StepReport:
        names = {str(sample.origin.trajectory) for sample in batch.samples}
        if batch.step == 3 and names in (bad or [names]):
            bad.append(names)
            raise TrainingError("the loss is not finite")
        return step(self, batch)

    monkeypatch.setattr(WorldTrainer, "step", refuse)
    with pytest.raises(TrainingError, match="not finite"):
        world.live()
    failed = world.journal.taken[3]
    world.live()
    assert len(bad) == 2
    assert {world.journal.draws[draw].reason for draw in failed} == {DropReason.FAILED_STEP}
    assert max(world.journal.trained) == world.config.train.steps
    assert any("failed again" in str(row) for row in world.read_lines("events.jsonl"))
    check_audit(world)


def test_the_end_of_the_training_split_is_said(tmp_path: Path) -> None:
    family = WorldFamily()
    family.misbehave = lambda task: setattr(family, "num_tasks", 5)  # the start saw enough of them
    world = make_world(tmp_path / "run", family=family)
    with pytest.raises(DataError, match="the training split ended after 5 tasks"):
        world.live()
    assert sorted(world.journal.trained) == [1, 2]
    check_audit(world)


def test_rollouts_go_on_during_an_evaluation(tmp_path: Path) -> None:
    sections = {"schedule": {"max_staleness": 2}, "evaluate": {"tasks": 4, "every": 1}, "train": {"steps": 6}}
    world = make_world(tmp_path / "run", sections)
    world.live()
    scopes = [session.group.split("/")[0] for session in world.engine.sessions]
    first, last = scopes.index("evaluate", 8), len(scopes) - scopes[::-1].index("train")
    assert "train" in scopes[first:last]
    check_audit(world)


def test_stopping_the_loop_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", {"schedule": {"max_staleness": 2}, "train": {"steps": 60}})

    async def stop() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world._live(RunFolder.open(world.path)), 0.05)

    asyncio.run(stop())
    world.live()
    assert max(world.journal.trained) == 60
    check_audit(world)
