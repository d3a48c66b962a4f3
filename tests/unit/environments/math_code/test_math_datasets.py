"""Published layouts, from small files in the same shape; malformed rows are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import DataError
from turnwise.environments.data_rows import load_rows
from turnwise.environments.math_code.datasets import MathRow, to_math_row

DATA = Path(__file__).parents[3] / "data" / "math"


def read_problems(path: Path) -> list[MathRow]:
    return [row for _, row in load_rows(path, to_math_row)]


@pytest.mark.parametrize(
    ("name", "question", "answers", "kinds"),
    [
        (
            "gsm8k",
            "Ana fills 6 crates with 12 pears each and sells 15 pears. How many pears are left?",
            ["57", "1,250"],
            {"file"},
        ),
        ("dapo", "Find the remainder when $3^{20}$ is divided by $11$.", ["1", "34"], {"math_dapo"}),
        ("dapo_processed", "What is the sum of the positive divisors of 28?", ["56"], {"math_dapo"}),
        ("math", "Simplify $\\frac{6}{8}$.", ["\\frac{3}{4}", "x^{2}+1"], {"Prealgebra", "Algebra"}),
        ("aime", "How many positive integers less than 100 are divisible by 7 or 11?", ["22", "204"], {"file"}),
    ],
)
def test_published_layouts(name: str, question: str, answers: list[str], kinds: set[str]) -> None:
    rows = read_problems(DATA / f"{name}.jsonl")
    assert rows[0].question == question
    assert [row.answers[0] for row in rows] == answers
    assert {row.kind for row in rows} == kinds


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so it is $\boxed 2$.", "2"),
        (r"so it is \boxed 2", "2"),
        (r"$\boxed{2}$ and $\boxed{3}$", "2, 3"),
        (r"$\boxed{2}$ at first, but then $\boxed{3}$", "3"),
    ],
)
def test_the_boxes_of_a_solution(solution: str, answer: str) -> None:
    assert to_math_row({"problem": "p", "solution": solution}).answers == (answer,)


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    rows = [json.loads(line) for line in (DATA / "dapo.jsonl").read_text().splitlines()]
    path = tmp_path / "dapo.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert read_problems(path) == read_problems(DATA / "dapo.jsonl")
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_problems(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"question": "q", "answers": ["1"]}\n{"question": "q"}\n', r":2: no answer under the keys \['question'\]"),
        (b"\n\n[1]\n", ":3: list instead of an object"),
        (b"{", ":1: not JSON in UTF-8"),
        (b'{"question": "\xff"}', ":1: not JSON in UTF-8"),
        (b"\n", "no rows"),
        (b'{"question": "q", "answers": []}', '"answers" is \\[\\]'),
        (b'{"question": " ", "answer": "1"}', '"question" is '),
        (b'{"problem": "p", "solution": "it is 3"}', "no \\\\boxed"),
        (b'{"prompt": [], "reward_model": {"ground_truth": "1"}}', '"prompt" is \\[\\]'),
        (b'{"prompt": "p", "reward_model": 3}', '"reward_model.ground_truth" is None'),
        (b'{"question": "q", "answer": true}', '"answer" is True'),
    ],
)
def test_malformed_rows_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_problems(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ends with '.csv'; use a .jsonl, .ndjson, .json or .parquet file"):
        read_problems(tmp_path / "rows.csv")


def test_a_row_of_ones_own() -> None:
    row: dict[str, Any] = {"question": " q ", "answers": ["1/2", "0.5"], "kind": "fractions", "type": "ignored"}
    math_row = to_math_row(row)
    assert (math_row.question, math_row.answers, math_row.kind) == ("q", ("1/2", "0.5"), "fractions")
