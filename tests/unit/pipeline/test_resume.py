"""A run that ended anywhere goes on: redone steps give the same weights, nothing is sampled twice, everything is
accounted for."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from crash_points import Crash, crash_at
from pipeline_world import Pace, World, make_config, read_story

from turnwise.core.types import DropReason
from turnwise.store.groups import GroupStore
from turnwise.store.journal import Journal, JournalState

DYNAMIC = {"dynamic_sampling": {"metric": "reward", "max_batches": 3}}
BY_VALUE = {"dynamic_sampling": {"metric": "reward", "max_batches": 3, "refill": "value"}}
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "synchronous": {},
    "asynchronous": {"schedule": {"max_staleness": 2}},
    "filtered": {"rollout": DYNAMIC},
    "by value": {"rollout": BY_VALUE},
    "filtered, asynchronous": {"rollout": DYNAMIC, "schedule": {"max_staleness": 1}},
    "over-drawn, late ones dropped": {
        "schedule": {"max_staleness": 1, "overdraw": 1, "late": "drop", "patience_s": 0.001, "min_members": 1}
    },
    "late members cut": {"schedule": {"max_staleness": 2, "late": "cut", "patience_s": 0.001, "min_members": 1}},
}


@pytest.fixture(autouse=True)
def _forget_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it wrote, so no test here waits for the disk."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def make_world(path: Path, sections: dict[str, dict[str, Any]], **changes: Any) -> World:
    return World(path=path, config=make_config(**sections), **changes)


def count_places(path: Path, sections: dict[str, dict[str, Any]]) -> tuple[World, int]:
    world = make_world(path, sections)
    with crash_at(None) as counter:
        world.live()
    return world, counter.num_passed


def finished_draws(state: JournalState) -> set[int]:
    return {record.draw for record in state.draws.values() if record.digest is not None}


def check_openings(world: World) -> None:
    """A draw is opened again under another version only, or after its group was lost; its attempt number grows by 1."""
    last: dict[int, dict[str, Any]] = {}
    for row in world.read_lines("journal.jsonl"):
        if row["kind"] == "opened":
            before = last.get(row["draw"])
            if before is not None:
                assert row["version"] != before["version"]
                assert row["attempt"] == before["attempt"] + 1
            last[row["draw"]] = row


def check_continued(world: World, before: JournalState) -> None:
    """`world` was continued from `before` to its end."""
    after = world.journal
    assert not [row for row in world.read_lines("journal.jsonl") if row["kind"] == "rewound"]
    for step, trained in before.trained.items():
        assert after.trained[step].sums == trained.sums
        assert after.taken[step] == before.taken[step]
    assert not world.sampled_draws() & finished_draws(before)
    for record in before.waiting:
        assert after.draws[record.draw].fate in ("taken", "dropped", "waiting")
        assert after.draws[record.draw].digest == record.digest
    check_openings(world)
    assert max(after.trained) == world.config.train.steps
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    ages = [r["version"] - r["start_version"] for r in world.read_lines("ledger.jsonl") if r["fate"] == "trained"]
    assert max(ages) <= world.config.schedule.max_staleness


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_any_place_loses_nothing(tmp_path: Path, case: str, stride: int) -> None:
    whole, num_places = count_places(tmp_path / "whole", CASES[case])
    story = read_story(whole)
    for number in range(0, num_places, stride):
        world = make_world(tmp_path / f"run{number}", CASES[case], pace=Pace(seed=number))
        with crash_at(number) as counter:
            try:
                world.live()
            except Crash:
                pass
            else:
                continue  # this timing passes fewer places
        before = world.journal
        try:
            world.live()
            check_continued(world, before)
        except Exception as cause:
            raise AssertionError(f"crash {number} of {num_places}, {counter.where}") from cause
        if not world.config.schedule.max_staleness:
            assert read_story(world) == story, f"crash {number} of {num_places}, {counter.where}"


def test_a_half_sampled_refill_is_finished_before_the_next_is_chosen(tmp_path: Path) -> None:
    num_tasks = 12  # four of them are filtered, and two of those four the next time
    case: dict[str, dict[str, Any]] = {
        "rollout": {**BY_VALUE, "tasks_per_step": num_tasks},
        "train": {"steps": 1},
    }
    whole, num_places = count_places(tmp_path / "whole", case)
    story, num_half_sampled = read_story(whole), 0
    for number in range(num_places // 2, num_places, 4):
        world = make_world(tmp_path / f"run{number}", case, pace=Pace(seed=number))
        with crash_at(number), contextlib.suppress(Crash):
            world.live()
        refills = [record for record in world.journal.draws.values() if record.draw >= num_tasks]
        if {"open", "dropped"} <= {record.fate for record in refills}:
            num_half_sampled += 1
            world.live()
            assert read_story(world) == story
    assert num_half_sampled > 2, num_half_sampled


def test_a_crash_beside_a_slow_disk_loses_no_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Groups are dropped while others are on their way to the disk.
    monkeypatch.setattr("os.fsync", lambda handle: time.sleep(0.005))
    case = CASES["filtered, asynchronous"]
    _, num_places = count_places(tmp_path / "whole", case)
    for number in range(0, num_places, 14):
        world = make_world(tmp_path / f"run{number}", case, pace=Pace(seed=number))
        with crash_at(number), contextlib.suppress(Crash):
            world.live()
        before = world.journal
        world.live()
        check_continued(world, before)


def stop_after(path: Path, sections: dict[str, dict[str, Any]], *, lines: int) -> World:
    """An asynchronous run whose process ended before line `lines` + 1 of the journal."""
    world = make_world(path, sections)
    append, count = Journal._append, 0

    def stop(self: Journal, *rows: Any, **kwargs: Any) -> None:
        nonlocal count
        count += len(rows)
        if count > lines:
            raise Crash
        append(self, *rows, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "_append", stop)
        with pytest.raises(Crash):
            world.live()
    return world


ASYNCHRONOUS = {"schedule": {"max_staleness": 2}, "train": {"steps": 6, "checkpoint_every": 0}}


@pytest.mark.parametrize("lines", [20, 28, 34])
def test_other_weights_take_back_later_steps_and_lose_their_groups(tmp_path: Path, lines: int) -> None:
    world = stop_after(tmp_path / "run", ASYNCHRONOUS, lines=lines)
    before = world.journal
    journal = world.read_lines("journal.jsonl")
    for row in journal:
        if row["kind"] == "trained" and row["step"] == 2:
            row["sums"] = {name: value + 1 for name, value in row["sums"].items()}
    (world.path / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in journal))
    world.live()
    after = world.journal
    assert after.taken[1] == before.taken[1]
    assert after.taken[2] == before.taken[2]
    later = {draw for draw, record in before.draws.items() if record.version >= 2 and record.digest is not None}
    assert all(after.draws[draw].reason is DropReason.LOST_VERSION for draw in later)
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    assert max(after.trained) == 6


@pytest.mark.parametrize("fate", ["taken", "waiting"])
def test_a_damaged_group_is_sampled_again(tmp_path: Path, fate: str) -> None:
    world = stop_after(tmp_path / "run", ASYNCHRONOUS, lines=30)
    state = world.journal
    draw = state.taken[2][0] if fate == "taken" else state.waiting[0].draw
    GroupStore(world.path).paths(draw)[0].write_bytes(b"damaged")
    world.live()
    after = world.journal
    assert after.draws[draw].attempt == state.draws[draw].attempt + 1
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    assert max(after.trained) == 6


def test_a_damaged_group_that_was_dropped_does_not_stop_the_run(tmp_path: Path) -> None:
    sections: dict[str, dict[str, Any]] = {"rollout": DYNAMIC, "train": {"steps": 4, "checkpoint_every": 1}}
    for lines in range(8, 40):
        world = stop_after(tmp_path / f"run{lines}", sections, lines=lines)
        state = world.journal
        fresh = [record for record in state.dropped if record.step not in state.taken]
        if fresh:
            break
    GroupStore(world.path).paths(fresh[0].draw)[1].unlink()
    world.live()
    report = world.audit()
    assert not report.breaches, [str(breach) for breach in report.breaches]
    assert world.journal.draws[fresh[0].draw].attempt == 1


def test_steps_since_an_old_checkpoint_are_redone_without_sampling(tmp_path: Path) -> None:
    world = stop_after(tmp_path / "run", ASYNCHRONOUS, lines=33)
    before = world.journal
    assert max(before.trained) >= 3  # and the only checkpoint is that of step 0
    world.live()
    check_continued(world, before)
