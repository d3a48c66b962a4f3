"""A run that ended anywhere goes on: redone steps give the same weights, nothing is sampled twice, everything is
accounted for."""

import json
from pathlib import Path
from typing import Any

import pytest
from crash_points import Crash, crash_at
from pipeline_world import Pace, World, make_config, read_story

from turnwise.store.journal import JournalState

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
