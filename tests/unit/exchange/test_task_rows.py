"""Rows of others: both directions are inverse to each other, and a wrong row is named by what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, DataError
from turnwise.core.types import text_message
from turnwise.environments.data_rows import load_rows
from turnwise.environments.math_code.datasets import to_math_row
from turnwise.environments.search_qa.files import load_questions
from turnwise.exchange.convert import convert
from turnwise.exchange.row_files import write_rows
from turnwise.exchange.task_rows import LAYOUTS, TaskRow

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXTS, children, max_size=3),
    max_leaves=6,
)
COLUMNS = st.sampled_from(["difficulty", "extra_info", "index", "metadata", "source", "url"])
PROMPTS = st.one_of(
    st.tuples(TEXTS.map(lambda text: text_message("user", text))),
    st.tuples(TEXTS.map(lambda text: text_message("system", text)), TEXTS.map(lambda text: text_message("user", text))),
)
TASKS = st.builds(
    TaskRow,
    prompt=PROMPTS,
    answers=st.lists(TEXTS, min_size=1, max_size=3).map(tuple),
    kind=TEXTS,
    extra=st.dictionaries(COLUMNS, VALUES, max_size=3),
)


@given(TASKS, st.sampled_from(sorted(LAYOUTS)))
def test_a_row_survives_every_layout(task: TaskRow, name: str) -> None:
    layout = LAYOUTS[name]
    row = layout.write(task)
    assert layout.read(json.loads(json.dumps(row))) == task
    assert layout.write(layout.read(row)) == row


@settings(max_examples=20)
@given(st.lists(TASKS, min_size=1, max_size=4), st.permutations(sorted(LAYOUTS)), st.data())
def test_a_file_survives_every_chain_of_formats(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[TaskRow], names: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    first = folder / "first.jsonl"
    write_rows(first, [LAYOUTS[names[0]].write(task) for task in tasks])
    source, before = first, names[0]
    for number, name in enumerate([*names[1:], names[0]]):
        target = folder / f"{number}.jsonl"
        convert(source, target, source_format=before, target_format=name, columns={})
        source, before = target, name
    assert source.read_bytes() == first.read_bytes()


VERL = {
    "data_source": "searchR1_nq",
    "prompt": [{"role": "user", "content": "Answer the given question. Question: who wrote Faust?"}],
    "ability": "fact-reasoning",
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Goethe", "J. W. Goethe"]}},
    "extra_info": {"index": 7, "split": "train"},
}
SKYRL = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "2 + 2?"}],
    "env_class": "gsm8k",
    "reward_spec": {"method": "rule", "ground_truth": "4"},
    "extra_info": {"split": "train", "index": 0},
}


def test_published_rows_of_verl_and_skyrl_are_read_and_written_as_they_are() -> None:
    task = LAYOUTS["verl"].read(VERL)
    assert task.answers == ("Goethe", "J. W. Goethe")
    assert task.extra == {"ability": "fact-reasoning", "extra_info": {"index": 7, "split": "train"}}
    assert LAYOUTS["verl"].write(task) == VERL
    assert LAYOUTS["skyrl"].write(LAYOUTS["skyrl"].read(SKYRL)) == SKYRL


def test_both_families_read_converted_rows_and_strip_the_instructions_of_others(tmp_path: Path) -> None:
    source, target = tmp_path / "verl.jsonl", tmp_path / "ours.jsonl"
    source.write_text(json.dumps(VERL) + "\n", encoding="utf-8")
    convert(source, target, source_format="verl", target_format="turnwise", columns={})
    [question] = load_questions(target)
    assert (question.question, question.answers, question.kind) == (
        "who wrote Faust?",
        ("Goethe", "J. W. Goethe"),
        "searchR1_nq",
    )
    source.write_text(json.dumps(SKYRL) + "\n", encoding="utf-8")
    convert(source, target, source_format="skyrl", target_format="turnwise", columns={})
    [(_, problem)] = load_rows(target, to_math_row)
    assert (problem.question, problem.answers, problem.kind) == ("2 + 2?", ("4",), "openai/gsm8k")


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"prompt": "2 + 2?", "solution": "4"}, ("4",)),
        ({"prompt": [{"role": "user", "content": "2 + 2?"}], "ground_truth": "4", "level": 1}, ("4",)),
        ({"prompt": "2 + 2?", "completion": "4"}, ("4",)),
        (
            {
                "prompt": [{"role": "user", "content": "2 + 2?"}],
                "completion": [{"role": "assistant", "content": "4"}],
            },
            ("4",),
        ),
        ({"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}, ("4",)),
        ({"prompt": "2 + 2?", "answers": ["4", "four"]}, ("4", "four")),
    ],
)
def test_every_form_of_trl(row: dict[str, Any], answers: tuple[str, ...]) -> None:
    task = LAYOUTS["trl"].read(row)
    assert [(m.role, m.text) for m in task.prompt] == [("user", "2 + 2?")]
    assert task.answers == answers


def test_an_exported_task_of_a_recipe_has_its_answers_in_the_payload() -> None:
    row = {
        "id": "a1",
        "prompt": [{"role": "user", "content": "?"}],
        "payload": {"kind": "2hop", "answers": ["x"], "world": 7},
    }
    task = LAYOUTS["turnwise"].read(row)
    assert (task.answers, task.kind) == (("x",), "2hop")
    assert task.extra["payload"]["world"] == 7


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("verl", {}, r'"prompt" is missing; expected a list of messages \{"role", "content"\}'),
        ("verl", {"prompt": "text"}, "\"prompt\" is 'text'; expected a list of messages"),
        ("verl", {"prompt": [{"role": "robot", "content": "?"}]}, r'"prompt\[0\]" is .* with a known role'),
        (
            "verl",
            {"prompt": [{"role": "user", "content": [{"type": "image"}]}]},
            r'"prompt\[0\].content" is .* expected a non-empty string',
        ),
        (
            "verl",
            {"prompt": [{"role": "user", "content": "?", "tool_calls": [1]}]},
            r'"prompt\[0\]" has \[\'tool_calls\'\]; expected a text prompt with only',
        ),
        ("verl", {k: v for k, v in VERL.items() if k != "data_source"}, '"data_source" is missing'),
        ("verl", {**VERL, "reward_model": "4"}, '"reward_model" is \'4\'; expected an object with "ground_truth"'),
        (
            "verl",
            {**VERL, "reward_model": {"ground_truth": None}},
            '"reward_model.ground_truth" is missing; expected an answer',
        ),
        (
            "verl",
            {**VERL, "reward_model": {"ground_truth": {"target": [" "]}}},
            r'"reward_model.ground_truth.target\[0\]" is \' \'',
        ),
        ("skyrl", {**SKYRL, "env_class": None}, '"env_class" is missing'),
        ("skyrl", {**SKYRL, "reward_spec": {}}, '"reward_spec" is {}'),
        ("trl", {"text": "a language model's text"}, '"prompt or messages" is missing'),
        (
            "trl",
            {"messages": [{"role": "user", "content": "?"}]},
            r'"messages" does not end with an assistant reply',
        ),
        ("turnwise", {"prompt": "?"}, '"answers" is missing; expected a list of strings'),
        ("turnwise", {"answers": ["x"]}, '"question" is missing'),
    ],
)
def test_a_row_of_the_wrong_layout_is_named_by_file_and_line(
    name: str, row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    good = {**VERL, **SKYRL, "answers": ["x"]}
    source.write_text(f"{json.dumps(good)}\n\n{json.dumps(row)}\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"in\.jsonl:3: {message}"):
        convert(source, target, source_format=name, target_format="turnwise", columns={})
    assert not target.exists()


@pytest.mark.parametrize(
    ("target_format", "row", "message"),
    [
        ("verl", {"prompt": "?", "answers": []}, 'the row has no answers, but "reward_model" needs a ground_truth'),
        ("verl", {"prompt": "?", "answers": ["x"], "data_source": "nq"}, "'data_source' has a special meaning"),
        ("trl", {"prompt": "?", "answers": ["x"], "completion": "y"}, "'completion' would be read as an answer"),
    ],
)
def test_what_a_format_cannot_hold_is_named_by_file_and_line(
    target_format: str, row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"in\.jsonl:1: .*{message}"):
        convert(source, tmp_path / "o.jsonl", source_format="turnwise", target_format=target_format, columns={})


def test_columns_for_every_row(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"question": "2 + 2?", "answers": ["4"]}\n', encoding="utf-8")
    convert(source, target, source_format="turnwise", target_format="skyrl", columns={"env_class": "gsm8k"})
    assert json.loads(target.read_text(encoding="utf-8")) == {
        "data_source": "file",
        "prompt": [{"role": "user", "content": "2 + 2?"}],
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": "4"},
        "question": "2 + 2?",
    }


@pytest.mark.parametrize("name", ["verl", "skyrl"])
def test_parquet_both_ways(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [VERL, VERL] if name == "verl" else [SKYRL, SKYRL]
    source, middle, target = tmp_path / "a.jsonl", tmp_path / "b.parquet", tmp_path / "c.jsonl"
    write_rows(source, rows)
    assert convert(source, middle, source_format=name, target_format=name, columns={}) == 2
    convert(middle, target, source_format=name, target_format=name, columns={})
    assert target.read_bytes() == source.read_bytes()
    assert load_questions(middle) if name == "verl" else True, "search_qa reads verl's Parquet directly"


def test_rows_that_parquet_would_change_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    cases: list[tuple[list[dict[str, Any]], str]] = [
        ([{"x": {"a": 1}}, {"x": {"b": 2}}], "x"),  # Parquet would add the nulls x.b and x.a
        ([{"y": 1}, {"y": "1"}], "y"),
    ]
    for rows, column in cases:
        with pytest.raises(DataError, match=rf"t\.parquet: .*column '{column}'.*\.jsonl"):
            write_rows(tmp_path / "t.parquet", rows)
    with pytest.raises(DataError, match=r"ends with '\.csv'"):
        write_rows(tmp_path / "t.csv", [{}])
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'verll' is unknown; use one of turnwise, verl, trl, skyrl"):
        convert(tmp_path, tmp_path, source_format="verll", target_format="trl", columns={})


def test_half_a_surrogate_pair_survives_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_rows(path, [{"question": "a\ud800", "answers": ["ä"]}])
    assert json.loads(path.read_bytes()) == {"question": "a\ud800", "answers": ["ä"]}


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_rows_with_pictures_are_not_converted(name: str) -> None:
    row = {**VERL, **SKYRL, "answers": ["4"], "images": ["a.png"]}
    with pytest.raises(DataError) as raised:
        LAYOUTS[name].read(row)
    assert str(raised.value) == (
        "'images' has pictures, which are not shown here (docs/pictures.md says where they are); leave the column out "
        "if the text says enough"
    )
    LAYOUTS[name].read({**row, "images": []})
    LAYOUTS[name].read({**row, "images": None, "image": "ubuntu:24.04"})
