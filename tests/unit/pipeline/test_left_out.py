"""Tasks that cannot be played are left out, named and counted, and never end a run twice at one row."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pipeline_world import World, WorldFamily, make_config

from turnwise.core.errors import DataError, StoreError
from turnwise.core.protocols import Split
from turnwise.core.types import Task, text_message
from turnwise.environments.file_splits import DataFile
from turnwise.store.journal import DrawRecord, Journal, read_journal


@pytest.fixture(autouse=True)
def _forget_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here kills a process, so none waits for the disk."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def fail_at(*indices: int) -> Callable[[int], str]:
    def write(index: int) -> str:
        if index in indices:
            raise KeyError("ground_truth")
        return f"task {index}"

    return write


@dataclass
class RowFamily(WorldFamily):
    """Tasks of a file of which some rows are bad."""

    write: Callable[[int], str] = field(default=lambda index: f"task {index}")

    def task(self, split: Split, index: int) -> Task:
        prompt = (text_message("user", self.write(index)),)
        return Task(environment="world", prompt=prompt, payload={"index": index})

    def place(self, split: Split, index: int) -> str:
        return f"rows.jsonl:{index + 1}"


def make_world(path: Path, family: RowFamily, **sections: dict[str, Any]) -> World:
    return World(path=path, config=make_config(**sections), family=family)


def read_notes(world: World, kind: str) -> list[str]:
    return [row["text"] for row in world.read_lines("events.jsonl") if row["kind"] == kind]


def test_a_task_that_cannot_be_made_is_replaced_and_the_journal_has_the_decision(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", RowFamily(write=fail_at(0, 3)))
    world.live()
    why = "task 3 of split 'train' (rows.jsonl:4): RowFamily: KeyError: 'ground_truth'"
    assert world.journal.left_out == {0: why.replace("task 3", "task 0").replace(":4", ":1"), 3: why}
    assert read_notes(world, "left_out")[1] == f"left out: {why}"
    tasks = [record.task_index for record in world.journal.draws.values()]
    assert tasks == [1, 2, 4, 5, 6, 7, 8, 9]  # 4 steps of 2 groups
    report = world.audit()
    assert not report.breaches
    assert report.facts["tasks_left_out"] == 2


def test_too_many_bad_rows_end_the_run_and_it_goes_on_behind_them(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", RowFamily(write=fail_at(*range(2, 8))))  # 6 of at least 100 are more than 5%
    with pytest.raises(DataError, match=r"6 of 8 tasks .*max_left_out=0.05.*rows.jsonl:8\): RowFamily: KeyError"):
        world.live()
    assert sorted(world.journal.left_out) == [2, 3, 4, 5, 6, 7]
    world.live()  # none of them is asked for again
    assert sorted(world.journal.trained) == [1, 2, 3, 4]
    assert not world.audit().breaches


def test_the_share_of_bad_rows_is_an_option(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", RowFamily(write=fail_at(1)), environment={"max_left_out": 0.0})
    with pytest.raises(DataError, match=r"rows.jsonl:2"):
        world.live()


def test_half_a_surrogate_pair_in_a_row_is_left_out(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", RowFamily(write=lambda index: "a \ud83d b" if index == 1 else f"task {index}"))
    world.live()
    assert "rows.jsonl:2" in world.journal.left_out[1]
    assert "half a surrogate pair ('\\ud83d' after" in world.journal.left_out[1]


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_row_that_is_too_long_is_replaced_and_named(tmp_path: Path, staleness: int) -> None:
    family = RowFamily(write=lambda index: "long " * 200 if index == 1 else f"task {index}")
    world = make_world(tmp_path / "run", family, schedule={"max_staleness": staleness})
    world.live()
    [note] = read_notes(world, "left_out")
    assert note.startswith("left out: task 1 of split 'train' (rows.jsonl:2): the opening of task")
    assert "leaves no room for a reply in rollout.max_tokens=120" in note
    fates = {record.task_index: record.reason for record in world.journal.dropped}
    assert fates == {1: "too_long"}
    assert sorted(world.journal.trained) == [1, 2, 3, 4]
    assert not world.audit().breaches


def test_rows_that_are_all_too_long_end_the_run(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", RowFamily(write=lambda index: "long " * 200 if index > 2 else "task"))
    for _ in range(2):  # a resumed run counts those before
        with pytest.raises(DataError, match=r"tasks cannot be played.*rows.jsonl:\d+\): the opening of task"):
            world.live()


def test_a_task_that_is_gone_when_its_draw_is_made_again_is_dropped(tmp_path: Path) -> None:
    world = make_world(tmp_path / "run", RowFamily(write=fail_at(0)))
    journal = Journal(world.path)
    journal.opened(DrawRecord(draw=0, task_index=0, version=0))  # by a process that ended
    journal.close()
    world.live()
    assert world.journal.draws[0].reason == "lost_task"
    assert list(world.journal.left_out) == [0]
    assert sorted(world.journal.trained) == [1, 2, 3, 4]
    assert not world.audit().breaches


def test_the_journal_reads_back_what_was_left_out(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text(json.dumps({"format": 2}))
    journal = Journal(tmp_path)
    journal.left_out(7, "no answer")
    journal.close()
    assert (read_journal(tmp_path).next_task, dict(read_journal(tmp_path).left_out)) == (8, {7: "no answer"})
    (tmp_path / "journal.jsonl").write_text('{"kind": "left_out", "task": -1, "why": "x"}\n')
    with pytest.raises(StoreError, match="line 1"):
        read_journal(tmp_path)


def test_a_data_file_that_changed_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("1\n2\n")

    class FileFamily(RowFamily):
        data_files = (DataFile(path=rows, num_rows=2),)

    world = make_world(tmp_path / "run", FileFamily())
    world.live()
    rows.write_text("1\n3\n")
    with pytest.raises(DataError, match=r"rows.jsonl: SHA-256 \w+ \(2 rows, 4 bytes\) .*turnwise data accept"):
        world.live()
    [breach] = world.audit().breaches
    assert str(breach).startswith(f"[data] {rows}: SHA-256 ")
    rows.write_text("1\n2\n")
    world.live()
    report = world.audit()
    assert not report.breaches
    assert report.tallies["data"].checked == 1
