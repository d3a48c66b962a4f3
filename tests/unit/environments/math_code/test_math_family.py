"""The family: tasks as pure functions, splits, judges, arguments it refuses, texts for the tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.protocols import Split
from turnwise.environments.math_code.family import MathCode
from turnwise.environments.math_code.policies import RandomPolicy, plan_of

STAND_IN: dict[str, Any] = {"sandbox": "stand_in_sandbox:SubprocessSandbox"}


def write_rows(path: Path, count: int, start: int = 0) -> str:
    path.write_text(
        "".join(
            json.dumps({"question": f"{n} + 1 ?", "answers": [str(n + 1)]}) + "\n" for n in range(start, start + count)
        )
    )
    return str(path)


def test_tasks_are_a_function_of_split_and_index() -> None:
    first, second = (MathCode(**STAND_IN) for _ in range(2))
    tasks = [first.task("train", index) for index in range(200)]
    assert [second.task("train", index).id for index in range(200)] == [task.id for task in tasks]
    assert MathCode(**STAND_IN, seed=1).task("train", 0).id != tasks[0].id
    splits: tuple[Split, Split] = ("train", "heldout")
    train, heldout = ({first.task(split, i).payload["question"] for i in range(400)} for split in splits)
    assert not train & heldout
    assert len(train) > 390  # fresh numbers: hardly a repetition
    assert json.dumps(dict(tasks[0].payload))
    assert plan_of(tasks[0]) is not None


def test_generated_answers_are_whole_numbers_however_they_are_spaced() -> None:
    family = MathCode(**STAND_IN)
    task = family.task("train", 0)
    right = task.payload["answers"][0]
    assert [
        family._judge(task, text) for text in (right, f" {right} ", f"0{right}", f"{right}.0", f"-{right}x", "")
    ] == [True] * 3 + [False] * 3


def test_files_cycle_in_training_and_end_when_held_out(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    family = MathCode(
        **STAND_IN,
        mode="files",
        train_path=write_rows(tmp_path / "a.jsonl", 5),
        heldout_path=write_rows(tmp_path / "b.jsonl", 3, 100),
    )
    passes = [[family.task("train", 5 * epoch + index).payload["question"] for index in range(5)] for epoch in range(3)]
    assert all(sorted(one) == [f"{n} + 1 ?" for n in range(5)] for one in passes)
    assert len({tuple(one) for one in passes}) > 1
    assert family.task("heldout", 2).payload["answers"] == ["103"]
    with pytest.raises(IndexError, match="the file has 3 rows"):
        family.task("heldout", 3)
    assert family._judge(family.task("heldout", 0), "1,01") is False
    assert family._judge(family.task("heldout", 0), "101")
    with pytest.raises(ConfigError, match="generated problems and stories only"):
        family.policy("naive").reply(family.task("train", 0), [], Random(0))


def test_the_prompts_hold_the_question_and_say_what_is_expected() -> None:
    for prompt, words in (
        ("short", ()),
        ("boxed", ("\\boxed{}",)),
        ("retool", ("<code>", "<interpreter>", "\\boxed{")),
    ):
        task = MathCode(**STAND_IN, prompt=prompt).task("train", 0)  # type: ignore[arg-type]
        assert task.payload["question"] in task.prompt[0].text
        assert all(word in task.prompt[0].text for word in words)


def test_texts_are_repeatable_and_show_every_number() -> None:
    family = MathCode(**STAND_IN, prompt="short")
    texts = family.texts(3000)
    assert len(texts) == 3000
    assert texts == MathCode(**STAND_IN, prompt="short").texts(3000)
    words = {word for text in texts for word in text.split()}
    assert {str(number) for number in range(100)} <= words
    assert "print(" in words
    assert any("NameError" in text for text in texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "web"}, "mode='web'"),
        ({"kinds": {"sums": 1.0}}, "kinds.sums=1.0.*chain"),
        ({"kinds": {"chain": -1.0}}, "kinds.chain=-1.0"),
        ({"kinds": {"chain": 0.0}}, "no positive weight"),
        ({"bug_rate": 1.5}, "bug_rate=1.5"),
        ({"max_calls": 1.5}, "max_calls=1.5"),
        ({"code": 1}, "code=1"),
        ({"wall_s": 30.0}, "wall_s=30.0 leaves no time"),
        ({"reward": "f1"}, "reward='f1'"),
        ({"mode": "files"}, "train_path=''"),
        ({"sandbox": "nowhere"}, "sandbox='nowhere'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MathCode(**{**STAND_IN, **arguments})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.jsonl"):
        MathCode(**STAND_IN, mode="files", train_path=str(tmp_path / "none.jsonl"), heldout_path="x.jsonl")


def test_policies_are_known_by_name() -> None:
    family = MathCode(**STAND_IN)
    with pytest.raises(ConfigError, match="oracle, random, naive"):
        family.policy("expert")
    assert isinstance(family.policy("random"), RandomPolicy)
    assert family.policy("oracle").reply(family.task("train", 0), [], Random(0)).tool_calls[0].name == "python"


def test_reasoning_gym_problems_are_disjoint_repeatable_and_judged_by_their_own_scorer() -> None:
    pytest.importorskip("reasoning_gym")
    from turnwise.environments.math_code.reasoning import DATASETS

    family = MathCode(**STAND_IN, mode="reasoning_gym")
    tasks = [family.task("train", index) for index in range(60)]
    assert {task.payload["kind"] for task in tasks} == set(DATASETS)
    assert tasks[0].id == MathCode(**STAND_IN, mode="reasoning_gym").task("train", 0).id
    assert not {t.payload["question"] for t in tasks} & {
        family.task("heldout", index).payload["question"] for index in range(60)
    }
    for name in DATASETS:
        task = next(task for task in tasks if task.payload["kind"] == name)
        assert family._judge(task, task.payload["answers"][0]), name
        assert not family._judge(task, "nothing of the sort {"), name
