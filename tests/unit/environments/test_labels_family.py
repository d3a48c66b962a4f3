"""Labelled questions as tasks: what a policy reads is what a judge reads, and its verdict is its reward."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.types import Scored, StopReason, text_message
from turnwise.environments.labels.family import Labels, list_labels, write_verdict
from turnwise.questions.forms import criteria, match
from turnwise.questions.labels import name_verdict, read_labelled
from turnwise.questions.prompts import write_prompt
from turnwise.questions.replies import read_reply

ROWS: list[dict[str, Any]] = [
    {"text": "red", "reference": "red", "label": "correct"},
    {"text": "a poem", "rubric": "Does it rhyme?", "label": 0.25},
    {"text": "which?", "answers": ["a", "b"], "label": "second"},
    {"text": "x", "criteria": {"good": 2, "lies": -1}, "label": 1},
]


def load(folder: Path, rows: list[dict[str, Any]] = ROWS, **arguments: Any) -> Labels:
    for split in ("train", "heldout"):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Labels(train_path=str(folder / "train.jsonl"), heldout_path=str(folder / "heldout.jsonl"), **arguments)


def score(family: Labels, index: int, reply: str) -> Any:
    task = family.task("heldout", index)
    return asyncio.run(family.build_environment(task).score([text_message("assistant", reply)], StopReason.DONE))


def test_a_task_is_the_prompt_that_a_judge_reads_and_has_the_label_apart(tmp_path: Path) -> None:
    family = load(tmp_path)
    for index, row in enumerate(ROWS):
        task = family.task("heldout", index)
        assert task.prompt[0].text == write_prompt(read_labelled(row).question)
        assert "label" not in task.payload["asked"]
    assert "label" not in family.task("heldout", 0).prompt[0].text


@pytest.mark.parametrize(
    ("index", "reply", "success", "readable"),
    [
        (0, "verdict: correct", 1.0, 1.0),
        (0, "verdict: incorrect", 0.0, 1.0),
        (0, "correct", 0.0, 0.0),
        (1, "score: 0.1", 1.0, 1.0),
        (1, "score: 0.5", 0.0, 1.0),
        (2, "better: second", 1.0, 1.0),
        (3, "criterion 1: yes\ncriterion 2: no", 1.0, 1.0),
        (3, "criterion 1: no\ncriterion 2: no", 0.0, 1.0),
    ],
)
def test_the_reward_is_agreement_with_the_label(
    tmp_path: Path, index: int, reply: str, success: float, readable: float
) -> None:
    expected = Scored.of(success, {"success": success, "readable": readable})
    assert score(load(tmp_path), index, reply) == expected


def test_every_label_has_a_verdict_that_reads_as_it() -> None:
    for form in [match("x"), criteria({"a": 1, "b": -1, "c": 1}), read_labelled(ROWS[1]).question.form]:
        for label in list_labels(form):
            assert name_verdict(*read_reply(write_verdict(form, label), form), form) == label


def test_files_are_needed_and_wrong_rows_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="train_path"):
        Labels()
    with pytest.raises(DataError, match=r"train\.jsonl:2: field 'label' is missing"):
        load(tmp_path, [*ROWS[:1], {"text": "x"}], max_bad_rows=0.0)
