"""Scores of other programs' evaluations, and every way in which their files are wrong."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import DataError
from turnwise.exchange.score_files import read_score_rows


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_rows_of_jsonl_and_csv_are_the_same(tmp_path: Path) -> None:
    jsonl = write(
        tmp_path / "a.jsonl",
        {"task": "t1", "sample": 1, "score": 1, "cluster": "w1", "kind": "easy"},
        {"task": "t1", "sample": 2, "score": None, "cluster": "w1", "kind": "easy"},
        {"task": 7, "sample": 1, "score": 0.25, "cluster": "w2", "kind": "hard"},
    )
    table = tmp_path / "a.csv"
    table.write_text("task,sample,score,cluster,kind\nt1,1,1,w1,easy\nt1,2,,w1,easy\n7,1,0.25,w2,hard\n")
    rows = [
        [(row.task, row.sample, row.score, row.cluster, row.kind) for row in read_score_rows(path)]
        for path in (jsonl, table)
    ]
    assert (
        rows[0]
        == rows[1]
        == [("t1", "1", 1.0, "w1", "easy"), ("t1", "2", None, "w1", "easy"), ("7", "1", 0.25, "w2", "hard")]
    )


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (['{"task": "a", "score": NaN}'], r"line 1: score nan is not in \[0, 1\]"),
        ([{"task": "a", "score": 3}], r"line 1: score 3 is not in \[0, 1\]; divide by the best possible"),
        ([{"task": "a", "score": -0.5}], r"line 1: score -0.5 is not in \[0, 1\]"),
        ([{"task": "a", "score": "good"}], "line 1: score 'good' is no number"),
        ([{"task": "a", "score": [1]}], "is no number"),
        (
            [{"task": "a", "score": 1}, {"task": "a", "score": 0}],
            r"line 2: task 'a' was scored already \(.*line 1\).*column sample",
        ),
        ([{"task": "a", "sample": 1, "score": 1}] * 2, "sample '1' another number"),
        ([{"task": "a", "reward": 1}], "'score' is missing, there are task, reward; name the column with --score"),
        ([{"id": "a", "score": 1}], "column 'task' is missing"),
        ([{"task": "", "score": 1}], "line 1: task is empty"),
        ([{"task": True, "score": 1}], "task is bool"),
        (["[1]"], "line 1 is list, not a JSON object"),
        ([{"task": "a", "score": 1}, '{"task": "b", "sco'], "line 2 is not JSON .*cut off or damaged"),
        (
            [{"task": "a", "score": 1, "cluster": "w"}, {"task": "b", "score": 1}],
            "line 2: cluster is given for some tasks only",
        ),
        (
            [{"task": "a", "sample": 1, "score": 1, "kind": "x"}, {"task": "a", "sample": 2, "score": 1, "kind": "y"}],
            "line 2: kind of task 'a' is 'y', but 'x' in .*line 1",
        ),
        ([], "has no row"),
    ],
)  # fmt: skip
def test_a_bad_row_is_one_line(tmp_path: Path, rows: list[Any], line: str) -> None:
    with pytest.raises(DataError, match=line):
        read_score_rows(write(tmp_path / "a.jsonl", *rows))


def test_a_csv_that_is_none_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text, line in (
        (b"task,score\na,1,2\n", "line 2 has another number of values"),
        (b"task,score\na\n", "line 2 has another number of values"),
        (b"task,score\na,nan\n", r"line 2: score 'nan' is not in \[0, 1\]"),
        (b"task,score\na,inf\n", "is not in"),
        (b"\xff\xfe", "as CSV .*UTF-8"),
        (b"task,score\n", "has no row"),
    ):
        path.write_bytes(text)
        with pytest.raises(DataError, match=line):
            read_score_rows(path)
    with pytest.raises(DataError, match="cannot read"):
        read_score_rows(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"ends with '\.txt'"):
        read_score_rows(write(tmp_path / "a.txt"))


def sample(name: str, epoch: int = 1, **fields: Any) -> dict[str, Any]:
    return {"id": name, "epoch": epoch, "scores": {"match": {"value": "C"}}, **fields}


def write_log(path: Path, status: str, samples: list[dict[str, Any]], *, summaries: bool = False) -> Path:
    header = {"status": status, "eval": {"task": "t"}}
    if path.suffix == ".json":
        path.write_text(json.dumps({**header, "samples": samples}))
        return path
    with zipfile.ZipFile(path, "w") as archive:
        if status != "none":
            archive.writestr("header.json", json.dumps(header))
        if summaries:
            archive.writestr("summaries.json", json.dumps(samples))
        for each in samples:
            archive.writestr(f"samples/{each['id']}_epoch_{each['epoch']}.json", json.dumps(each))
    return path


@pytest.mark.parametrize(("name", "summaries"), [("a.eval", False), ("a.eval", True), ("a.json", False)])
def test_inspect_logs_are_read_without_inspect(tmp_path: Path, name: str, summaries: bool) -> None:
    log = write_log(
        tmp_path / name,
        "success",
        [
            sample("q1", metadata={"cluster": "w1", "kind": "easy"}),
            sample("q1", 2, scores={"match": {"value": "I"}}, metadata={"cluster": "w1", "kind": "easy"}),
            sample("q2", scores={"match": {"value": 0.5}}, metadata={"cluster": "w2"}),
            sample("q3", error={"message": "crash"}, metadata={"cluster": "w3"}),
            sample("q4", scores={"match": {"value": True}}, metadata={"cluster": 4}),
            sample("q5", scores={"match": {"value": float("nan")}}, metadata={"cluster": 4}),
        ],
        summaries=summaries,
    )
    rows = [(row.task, row.sample, row.score, row.cluster, row.kind) for row in read_score_rows(log)]
    assert rows == [
        ("q1", "1", 1.0, "w1", "easy"),
        ("q1", "2", 0.0, "w1", "easy"),
        ("q2", "1", 0.5, "w2", None),
        ("q3", "1", None, "w3", None),
        ("q4", "1", 1.0, "4", None),
        ("q5", "1", None, "4", None),
    ]


def test_a_log_with_several_scores_asks_which_one(tmp_path: Path) -> None:
    scores = {"match": {"value": "C"}, "judge": {"value": {"style": 0.5, "truth": 1}}}
    log = write_log(tmp_path / "a.eval", "success", [sample("q1", scores=scores)])
    with pytest.raises(
        DataError, match=r"has several scores \(match, judge/style, judge/truth\); choose one with --score"
    ):
        read_score_rows(log)
    assert read_score_rows(log, "judge/style")[0].score == 0.5
    with pytest.raises(DataError, match="has no score 'f1'"):
        read_score_rows(log, "f1")


def test_a_log_of_an_interrupted_evaluation_is_one_line(tmp_path: Path) -> None:
    for status in ("started", "cancelled", "error"):
        with pytest.raises(DataError, match=f"status '{status}', interrupted after 2 samples"):
            read_score_rows(write_log(tmp_path / "a.eval", status, [sample("q1"), sample("q2")]))
    with pytest.raises(DataError, match=r"has no header\.json: the evaluation was interrupted after 1 samples"):
        read_score_rows(write_log(tmp_path / "a.eval", "none", [sample("q1")]))
    whole = (tmp_path / "a.eval").read_bytes()
    (tmp_path / "a.eval").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot read"):
        read_score_rows(tmp_path / "a.eval")
    for text in ('{"other": 1}', "[]", '{"samples": [1]}'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(DataError, match="is no Inspect log with samples"):
            read_score_rows(tmp_path / "a.json")
