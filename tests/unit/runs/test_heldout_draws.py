"""Held-out tasks: copies are no further evidence, and a bad row ends no evaluation."""

from dataclasses import dataclass

import pytest

from turnwise.core.errors import DataError
from turnwise.core.protocols import Split
from turnwise.core.types import Task, text_message
from turnwise.environments.draws import find_tasks
from turnwise.runs.heldout import draw_heldout
from turnwise.runs.openings import take_first, take_task


@dataclass
class Rows:
    """A held-out file, row by row; None is a row that its family cannot read."""

    rows: list[str | None]

    def task(self, split: Split, index: int) -> Task:
        text = self.rows[index]
        if text is None:
            raise TypeError("'NoneType' object is not iterable")
        return Task(environment="rows", prompt=(text_message("user", text),), payload={})

    def place(self, split: Split, index: int) -> str:
        return f"{split}.jsonl:{index + 1}"


def test_copies_are_evaluated_once_and_counted() -> None:
    heldout = draw_heldout(Rows(["a", "b", "a", "c", "a", "b"]), 10)  # type: ignore[arg-type]
    assert [draw.index for draw in heldout.draws] == [0, 1, 3]
    assert heldout.notes == [
        "3 different tasks are evaluated; left out as copies of earlier ones: 3 (task 2 of split 'heldout' "
        "(heldout.jsonl:3) equals task 0 of split 'heldout' (heldout.jsonl:1))"
    ]


def test_a_bad_row_is_named_and_left_out_up_to_a_share() -> None:
    rows = Rows(["a", None, "c"])
    heldout = draw_heldout(rows, 10, max_left_out=0.05)  # type: ignore[arg-type]
    assert [draw.index for draw in heldout.draws] == [0, 2]
    assert heldout.notes == [
        "left out: task 1 of split 'heldout' (heldout.jsonl:2): Rows: TypeError: 'NoneType' object is not iterable"
    ]
    with pytest.raises(DataError, match=r"1 of 10 tasks cannot be played.*heldout.jsonl:2"):
        draw_heldout(rows, 10)  # type: ignore[arg-type]


def test_a_set_that_overlaps_another_is_refused_by_count() -> None:
    rows = Rows(["a", "b", "a", "b", "c"])
    reported = {draw.task.id for draw in draw_heldout(rows, 2).draws}  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"2 of the 3 tasks from held-out task 2 are copies of tasks of evaluate.tasks"):
        draw_heldout(rows, 3, first=2, reserved=reported)  # type: ignore[arg-type]
    left = draw_heldout(rows, 3, first=2, reserved=reported, max_left_out=0.7)  # type: ignore[arg-type]
    assert [draw.index for draw in left.draws] == [4]
    assert left.notes == [
        "left out as copies of tasks of evaluate.tasks: 2 (such as task 2 of split 'heldout' (heldout.jsonl:3))"
    ]
    with pytest.raises(DataError, match=r"the held-out split ends before task 9; lower evaluate.tasks"):
        draw_heldout(rows, 3, first=9)  # type: ignore[arg-type]


def test_a_start_takes_the_first_tasks_that_can_be_made() -> None:
    rows = Rows([None, "b", None, "d"])
    assert [index for index, _ in find_tasks(rows, "train", 2)] == [1, 3]  # type: ignore[arg-type]
    assert take_first(rows).prompt[0].text == "b"  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"task 0 of split 'train' \(train.jsonl:1\): Rows: TypeError"):
        take_first(Rows([None] * 3))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the training split is empty"):
        take_first(Rows([]))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"no task 9 \(list index out of range\)"):
        take_task(rows, "train", 9, "no task 9")  # type: ignore[arg-type]
