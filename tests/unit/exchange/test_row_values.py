"""Values of other people's columns: typed JSON, Parquet as it was, or one line that names row, column and remedy."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import ConfigError, DataError
from turnwise.environments.data_rows import read_rows
from turnwise.exchange.convert import convert
from turnwise.exchange.row_files import write_rows

PROMPT = [{"role": "user", "content": "2 + 2?"}]


def make_verl(**changes: Any) -> dict[str, Any]:
    return {
        "data_source": "sums",
        "prompt": PROMPT,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "4"},
        **changes,
    }


def write_parquet(path: Path, *rows: dict[str, Any]) -> Path:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(list(rows)), path)
    return path


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2024, 5, 1, 12, 30),
        datetime.date(2024, 5, 1),
        datetime.timedelta(seconds=3),
        decimal.Decimal("1.50"),
        b"\x00\xff",
        float("nan"),
        float("inf"),
        [1.0, float("nan")],
        {"at": datetime.date(2024, 5, 1)},
    ],
    ids=repr,
)
def test_what_json_has_no_form_for_is_refused_by_row_and_column_and_kept_in_parquet(
    tmp_path: Path, value: object
) -> None:
    source = write_parquet(tmp_path / "in.parquet", make_verl(extra=1), make_verl(extra=1))
    source = write_parquet(tmp_path / "in.parquet", make_verl(seen=value), make_verl(seen=value))
    target = tmp_path / "out.jsonl"
    with pytest.raises(DataError, match=r"in.parquet:1: column 'seen' contains a value that JSON .*--drop COLUMN"):
        convert(source, target, source_format="verl", target_format="turnwise", columns={})
    assert not target.exists()
    convert(source, target, source_format="verl", target_format="turnwise", columns={}, drop=["seen"])
    assert all("seen" not in row for _, row in read_rows(target))
    convert(source, tmp_path / "out.parquet", source_format="verl", target_format="skyrl", columns={})
    assert [repr(row["seen"]) for _, row in read_rows(tmp_path / "out.parquet")] == [repr(value)] * 2


def test_a_column_to_leave_out_must_be_there(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", [make_verl()])
    with pytest.raises(ConfigError, match="--drop sene: no row"):
        convert(
            tmp_path / "in.jsonl",
            tmp_path / "out.jsonl",
            source_format="verl",
            target_format="trl",
            columns={},
            drop=["sene"],
        )


def test_parquet_never_turns_whole_numbers_into_others(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column 'score' have several layouts or types"):
        write_rows(tmp_path / "out.parquet", [{"score": 1}, {"score": 0.5}])


@pytest.mark.parametrize(
    ("truth", "answers"),
    [
        (72, ["72"]),
        (0.5, ["0.5"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], ["1", "2"]),
        ({"target": "a"}, ["a"]),
        ({"target": 24, "numbers": [4, 6, 1]}, ["24"]),
        ({"inputs": ["1"], "outputs": ["2"]}, []),
        ([], []),
        (True, []),
        ([[1, 2], [3]], []),
        ({"target": ["a", "b"]}, ["a", "b"]),
        ("72", ["72"]),
    ],
    ids=repr,
)
def test_every_form_of_a_ground_truth_survives(tmp_path: Path, truth: Any, answers: list[str]) -> None:
    row = make_verl(reward_model={"style": "rule", "ground_truth": truth})
    paths = [tmp_path / f"{number}.jsonl" for number in range(5)]
    write_rows(paths[0], [row])
    chain = ["verl", "turnwise", "skyrl", "trl", "verl"]
    for number in range(4):
        convert(
            paths[number],
            paths[number + 1],
            source_format=chain[number],
            target_format=chain[number + 1],
            columns={"env_class": "sums"} if chain[number + 1] == "skyrl" else {},
        )
    assert json.loads(paths[1].read_text())["answers"] == answers
    assert json.loads(paths[2].read_text())["reward_spec"]["ground_truth"] == truth
    last = json.loads(paths[4].read_text())
    assert last["reward_model"] == row["reward_model"]


@pytest.mark.parametrize("truth", [None, float("nan"), " "])
def test_a_ground_truth_that_is_none_is_refused_by_line(tmp_path: Path, truth: object) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps(make_verl(reward_model={"ground_truth": truth})) + "\n")
    with pytest.raises(DataError, match=r'in.jsonl:1: "reward_model.ground_truth" is'):
        convert(tmp_path / "in.jsonl", tmp_path / "out.jsonl", source_format="verl", target_format="trl", columns={})


@pytest.mark.parametrize(("name", "value"), [("solution", 72), ("answer", [72]), ("ground_truth", 72)])
def test_numbers_answer_in_rows_of_trl(tmp_path: Path, name: str, value: object) -> None:
    write_rows(tmp_path / "in.jsonl", [{"prompt": "2?", name: value}])
    convert(tmp_path / "in.jsonl", tmp_path / "out.jsonl", source_format="trl", target_format="turnwise", columns={})
    assert json.loads((tmp_path / "out.jsonl").read_text())["answers"] == ["72"]


def test_preferences_are_refused_by_line(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", [{"prompt": "2?", "chosen": "4", "rejected": "5"}])
    with pytest.raises(DataError, match=r"in.jsonl:1: 'chosen' and 'rejected': preferences"):
        convert(
            tmp_path / "in.jsonl", tmp_path / "out.jsonl", source_format="trl", target_format="turnwise", columns={}
        )


def test_a_map_of_parquet_is_an_object_where_json_has_its_keys(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = arrow.array([[("split", "x")], None], type=arrow.map_(arrow.string(), arrow.string()))
    parquet.write_table(arrow.table({"info": texts}), tmp_path / "texts.parquet")
    assert [row for _, row in read_rows(tmp_path / "texts.parquet")] == [{"info": {"split": "x"}}, {"info": None}]
    numbers = arrow.array([[(1, "x")]], type=arrow.map_(arrow.int64(), arrow.string()))
    parquet.write_table(arrow.table({"info": numbers}), tmp_path / "numbers.parquet")
    assert [row for _, row in read_rows(tmp_path / "numbers.parquet")] == [{"info": [(1, "x")]}]


def test_a_whole_number_that_parquet_cannot_hold_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"column 'n' contains an integer of more than 64 bits; write a .jsonl file"):
        write_rows(tmp_path / "rows.parquet", [{"n": 2**70}, {"n": 1}])
