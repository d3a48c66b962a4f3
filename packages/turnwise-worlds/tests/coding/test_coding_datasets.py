"""Rows of published data sets and our own: layouts, what is refused, which tests are hidden, a problem from a file."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from coding_tasks import open_family, play
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import ConfigError, DataError
from turnwise_worlds.coding.datasets import choose_hidden, to_coding_row
from turnwise_worlds.coding.family import Coding
from turnwise_worlds.coding.judge import Test

CALLS = [{"input": [[1, 2]], "output": 3}, {"input": [[4]], "output": 4}]
TEXTS = [{"input": "1 2\n", "output": "3\n"}, {"input": "4\n", "output": "4\n"}]


def functional(tests: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return [{**test, "testtype": "functional", **more} for test in tests]


@pytest.mark.parametrize(
    "row",
    [
        {"tests": functional(CALLS, fn_name="total")},
        {"tests": functional(CALLS), "metadata": {"func_name": "total"}},
        {"tests": json.dumps(functional(CALLS)), "metadata": '{"func_name": "total"}'},
        {"tests": functional([{"input": "[1, 2]", "output": "3"}, {"input": "[4]\n", "output": "4"}], fn_name="total")},
        {"tests": [{**test, "type": "function_call", "fn_name": "total"} for test in CALLS]},
        {"tests": {"inputs": [[[1, 2]], [[4]]], "outputs": [3, 4], "fn_name": "total"}},
        {"tests": functional(CALLS, metadata={"func_name": "total"})},
    ],
)
def test_layouts_of_functions_mean_the_same(row: dict[str, Any]) -> None:
    read = to_coding_row({"problem": " Add up. ", "solutions": ["def total(x): return sum(x)"], **row})
    assert (read.problem, read.form, read.entry) == ("Add up.", "functional", "total")
    assert read.tests == (Test(input=[[1, 2]], output=3), Test(input=[[4]], output=4))
    assert read.solution == "def total(x): return sum(x)"


@pytest.mark.parametrize(
    "tests",
    [
        TEXTS,
        [{**test, "testtype": "stdin"} for test in TEXTS],
        [{**test, "type": "stdin_stdout", "fn_name": None} for test in TEXTS],
        {"inputs": ["1 2\n", "4\n"], "outputs": ["3\n", "4\n"]},
    ],
)
def test_layouts_of_standard_input_mean_the_same(tests: Any) -> None:
    read = to_coding_row({"problem": "Add up.", "tests": tests})
    assert (read.form, read.entry, read.solution) == ("stdin", "", "")
    assert read.tests == (Test(input="1 2\n", output="3\n"), Test(input="4\n", output="4\n"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"problem": "", "tests": TEXTS}, '"problem" is'),
        ({"problem": "p", "tests": TEXTS, "solution": 3}, '"solution" is 3'),
        ({"problem": "p"}, '"tests" must be a list'),
        ({"problem": "p", "tests": []}, "at least one"),
        ({"problem": "p", "tests": "[{"}, '"tests" is not valid JSON'),
        ({"problem": "p", "tests": {"inputs": ["1"], "outputs": []}}, "of equal length"),
        ({"problem": "p", "tests": functional(CALLS)}, "names no function"),
        ({"problem": "p", "tests": functional(CALLS, fn_name="os.system")}, "names no function"),
        ({"problem": "p", "tests": [*functional(CALLS, fn_name="f"), TEXTS[0]]}, "mixes forms"),
        ({"problem": "p", "tests": [TEXTS[0], {"input": "1"}]}, r"tests\[1\] has \[\'input\'\]"),
        ({"problem": "p", "tests": [TEXTS[0], {"input": 1, "output": "1"}]}, r"tests\[1\]: .* must be text"),
        ({"problem": "p", "tests": functional([CALLS[0], {**CALLS[1], "input": 4}], fn_name="f")}, "list of arguments"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_coding_row(row)


@given(sizes=st.lists(st.integers(0, 30), min_size=2, max_size=40), visible=st.integers(0, 5))
def test_the_longest_inputs_are_hidden_in_their_order(sizes: list[int], visible: int) -> None:
    tests = tuple(Test(input="x" * size, output=str(number)) for number, size in enumerate(sizes))
    seen, hidden = choose_hidden(tests, visible, 15)
    assert seen == [*tests[: len(seen)]]
    assert len(seen) == min(visible, len(tests) - 1)
    assert 1 <= len(hidden) == min(15, len(tests) - len(seen))
    assert hidden == [test for test in tests if test in hidden]
    left_out = [test for test in tests[len(seen) :] if test not in hidden]
    assert all(len(out.input) <= len(kept.input) for out in left_out for kept in hidden)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("rows")
    paths = {}
    for split in ("train", "heldout"):
        lines = [
            {"problem": f"{split} total", "tests": functional(CALLS, fn_name="total"), "solution": SOLUTION},
            {"problem": f"{split} sum", "tests": TEXTS},
        ]
        path = folder / f"{split}.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        paths[f"{split}_path"] = str(path)
    return paths


SOLUTION = "def total(x): return sum(x)"


def test_a_problem_from_a_file_is_played(rows: dict[str, str]) -> None:
    family = open_family(mode="files", **rows)
    task = family.task("heldout", 0)
    assert task.prompt[0].text.endswith(
        "heldout total\nExample: [1, 2] gives 3\nThe program must define the function `total`.\n"
    )
    assert (task.payload["visible"], task.payload["hidden"]) == ([[[[1, 2]], 3]], [[[[4]], 4]])
    assert play(family, [family.policy("oracle").reply(task, task.prompt, Random(0))], task)[1].total == 1.0
    assert play(family, [family.policy("random").reply(task, task.prompt, Random(0))], task)[1].total == 0.0
    other = family.task("heldout", 1)
    assert "Example: '1 2\\n' gives '3\\n'\nThe program must read standard input" in other.prompt[0].text
    for policy in ("oracle", "naive"):
        with pytest.raises(ConfigError):
            family.policy(policy).reply(other, other.prompt, Random(0))
    with pytest.raises(IndexError, match="the file has 2 rows"):
        family.task("heldout", 2)
    assert len(family.texts(9)) == 9


def test_what_mode_files_needs_is_asked_for(rows: dict[str, str], tmp_path: Path) -> None:
    for arguments, error, message in (
        ({"train_path": ""}, ConfigError, "train_path='', but tasks are read from it"),
        ({"prompt": "short"}, ConfigError, "prompt='short' has no wording for mode='files'"),
        ({"wall_s": 70.0}, ConfigError, "wall_s=70.0 leaves no time"),
        ({"heldout_path": str(tmp_path / "x.csv")}, DataError, r"ends with '\.csv'"),
        ({"heldout_path": str(tmp_path / "none.jsonl")}, DataError, "cannot read"),
    ):
        with pytest.raises(error, match=message):
            Coding(**{"mode": "files", **rows, **arguments})
