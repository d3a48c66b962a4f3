"""Rows as published data sets have them: read whole, or refused with the reason and the remedy."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.errors import DataError
from turnwise.environments.data_rows import load_file
from turnwise_worlds.coding import private_tests
from turnwise_worlds.coding.datasets import choose_hidden, to_coding_row, trim_tests
from turnwise_worlds.coding.judge import Outcome, Test, judge_call
from turnwise_worlds.coding.runners import LONG

STDIN = (Test(input="1 2\n", output="3\n"), Test(input="4\n", output="4\n"))
CALLS = (Test(input=[[1, 2]], output=3), Test(input=[[4]], output=4))
COLUMNS = {"inputs": ["1 2\n", "4\n"], "outputs": ["3\n", "4\n"]}
CALL_COLUMNS = {"inputs": [[[1, 2]], [[4]]], "outputs": [[3], [4]], "fn_name": "total"}
STARTER = "class Solution:\n    def total(self, x: List[int]) -> int:\n"


def pack(value: object) -> str:
    """As LiveCodeBench packs its private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def live_code_bench(private: str, kind: str = "stdin", **more: Any) -> dict[str, Any]:
    public = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
    if kind == "functional":
        public = [{"input": "[1, 2]", "output": "3", "testtype": "functional"}]
    row = {"question_content": "Add up.", "public_test_cases": json.dumps(public), "private_test_cases": private}
    return {"question_title": "sum", "platform": "leetcode", "metadata": "{}", **row, **more}


PRIVATE = json.dumps([{"input": "4\n", "output": "4\n", "testtype": "stdin"}])
PRIVATE_CALLS = json.dumps([{"input": "[4]", "output": "4", "testtype": "functional"}])


@pytest.mark.parametrize(
    "row",
    [
        live_code_bench(PRIVATE),
        live_code_bench(pack(PRIVATE)),
        {"question": "Add up.", "input_output": json.dumps(COLUMNS), "solutions": "[]", "starter_code": ""},
        {"question": "Add up.", "input_output": {**COLUMNS, "fn_name": None}, "solutions": ""},
        {
            "question": "Add up.",
            "input_output": {"inputs": [["1 2", ""], ["4", ""]], "outputs": [["3", ""], ["4", ""]]},
        },
        {
            "prompt": [{"role": "user", "content": "Add up."}],
            "reward_model": {"style": "rule", "ground_truth": json.dumps(COLUMNS)},
        },
        {
            "description": "Add up.",
            "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
            "private_tests": {"input": [], "output": []},
            "generated_tests": {"input": ["4\n"], "output": ["4\n"]},
            "solutions": {"language": [2, 3], "solution": ["int main() {}", ""]},
            "input_file": "",
        },
        {
            "prompt": "Add up.",
            "verification_info": json.dumps(
                {
                    "language": "python",
                    "test_cases": [{"type": "stdin_stdout", "input": t.input, "output": t.output} for t in STDIN],
                }
            ),
        },
    ],
)
def test_programs_of_published_rows(row: dict[str, Any]) -> None:
    read = to_coding_row(row)
    assert (read.problem, read.form, read.entry, read.rules, read.solution) == ("Add up.", "stdin", "", (), "")
    assert read.tests == STDIN


@pytest.mark.parametrize(
    ("row", "rules"),
    [
        (live_code_bench(PRIVATE_CALLS, "functional", metadata='{"func_name": "total"}'), ()),
        (live_code_bench(pack(PRIVATE_CALLS), "functional", metadata='{"func_name": "total"}'), ()),
        ({"question": "Add up.", "input_output": json.dumps(CALL_COLUMNS)}, ("whole_keys", "wrapped")),
        (
            {"question": "Add up.", "input_output": json.dumps({**CALL_COLUMNS, "outputs": [3, 4]})},
            ("whole_keys",),
        ),
        (
            {
                "prompt": [{"role": "system", "content": "Add up."}],
                "reward_model": {
                    "ground_truth": {"inputs": ["[1, 2]", "[4]"], "outputs": ["3", "4"], "fn_name": "total"}
                },
            },
            ("whole_keys",),
        ),
        (
            {
                "prompt": "Add up.",
                "verification_info": {
                    "test_cases": [
                        {"type": "function_call", "fn_name": "total", "input": t.input, "output": [t.output]}
                        for t in CALLS
                    ]
                },
            },
            ("whole_keys", "wrapped"),
        ),
    ],
)
def test_functions_of_published_rows(row: dict[str, Any], rules: tuple[str, ...]) -> None:
    read = to_coding_row({**row, "starter_code": STARTER})
    assert (read.problem, read.form, read.entry, read.rules) == ("Add up.", "functional", "total", rules)
    assert (read.tests, read.starter) == (CALLS, STARTER.strip("\n"))


@pytest.mark.parametrize(
    ("row", "solution"),
    [
        ({"solutions": json.dumps(["x = 1", "x = 2"])}, "x = 1"),
        ({"solutions": ["```python\nx = 1\n```"]}, "x = 1\n"),
        ({"solutions": {"language": [2, 3], "solution": ["int x;", "x = 1"]}}, "x = 1"),
        ({"gold_standard_solution": "x = 1"}, "x = 1"),
        ({"solutions": None}, ""),
    ],
)
def test_the_first_solution_in_python_is_the_solution(row: dict[str, Any], solution: str) -> None:
    assert to_coding_row({"problem": "p", "tests": COLUMNS, **row}).solution == solution


def test_every_message_of_a_prompt_is_in_the_statement() -> None:
    prompt = [{"role": "system", "content": "Think.\n"}, {"role": "user", "content": "Add up."}]
    row = {"prompt": prompt, "reward_model": {"ground_truth": COLUMNS}}
    assert to_coding_row(row).problem == "Think.\n\nAdd up."
    with pytest.raises(DataError, match=r"prompt\[2\] has role 'assistant'"):
        to_coding_row({**row, "prompt": [*prompt, {"role": "assistant", "content": "Sure:"}]})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "def f():", "test": "def check(f): ...", "entry_point": "f"}, r"assertions \(entry_point, test\)"),
        ({"text": "p", "test_list": ["assert f(1) == 2"]}, r"assertions \(test_list\)"),
        ({"text": "p"}, r"no tests under the keys \['text'\]"),
        ({"question": "p", "input_output": ""}, '"input_output" is not valid JSON'),
        ({"question": "p", "input_output": "{}"}, "of equal length"),
        ({"question": "p", "input_output": json.dumps({"inputs": [], "outputs": []})}, "at least one object"),
        ({"prompt": "p", "reward_model": {"ground_truth": '{"functional": "assert"}'}}, r"has \['functional'\]"),
        ({"prompt": "p", "reward_model": {"ground_truth": None}}, "at least one object"),
        ({"description": "p", "public_tests": COLUMNS}, '"public_tests" has no "input" and "output"'),
        ({"description": "p", "public_tests": None, "input_file": "in.txt"}, "use files instead of standard input"),
        ({"prompt": "p", "verification_info": {"language": "rust", "test_cases": []}}, "only Python is supported"),
        ({"problem": "p", "tests": [{"input": "1", "output": "1", "type": "interactive"}]}, "of type 'interactive'"),
        ({"problem": "p", "tests": [{"input": "1", "output": " \n"}]}, "every expected output is empty"),
        ({"problem": "p \ud83d", "tests": COLUMNS}, r'"problem" contains \\ud83d, half of a surrogate pair'),
        ({"problem": "p", "tests": [{"input": "1", "output": "\udc00"}]}, r'"tests\[0\]" contains \\udc00'),
        ({"problem": "p", "tests": [{"input": [1], "output": float("nan"), "fn_name": "f"}]}, "contains NaN"),
        (
            {
                "problem": "p",
                "starter_code": "class Solution:\n    def f(self, head: Optional[ListNode], k: int) -> bool:\n        ",
                "tests": [{"input": [[1, 2], 3], "output": True, "fn_name": "f"}],
            },
            "f takes or returns a ListNode, but tests support only plain values; remove the row",
        ),
    ],
)
def test_a_published_row_that_cannot_be_used_says_why(row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        to_coding_row(row)
    assert "\n" not in str(refusal.value)


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("unpickled",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (pack(Attack()), "a pickle that contains more than text"),
        (pack([PRIVATE, PRIVATE]), "a pickle that contains more than text"),
        (pack(7), "a pickle that contains more than text"),
        (base64.b64encode(zlib.compress(pickle.dumps(PRIVATE)[:-9])).decode(), "an incomplete pickle"),
        (base64.b64encode(b"no zlib").decode(), "neither JSON nor compressed text"),
        ("no base64!", "neither JSON nor compressed text"),
        (pack("no json"), '"private_test_cases" is not valid JSON'),
    ],
)
def test_private_tests_are_never_unpickled(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=message):
        to_coding_row(live_code_bench(text))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_text_in_a_pickle_of_every_protocol_is_read(protocol: int) -> None:
    for text in ("", PRIVATE, "é\u2028😀", "x" * 70_000):
        packed = base64.b64encode(zlib.compress(pickle.dumps(text, protocol))).decode()
        assert private_tests.decode_private_tests(packed) == text


def test_a_few_bytes_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_tests, "MAX_BYTES", 1 << 20)
    with pytest.raises(DataError, match="is longer than 1 MiB"):
        private_tests.decode_private_tests(pack("x" * (2 << 20)))


def test_a_row_that_does_not_fit_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good, bad = {"problem": "p", "tests": COLUMNS}, {"problem": "p"}
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, bad, good)))
    with pytest.raises(DataError, match=r'rows.jsonl:2: "tests" must be'):
        load_file(path, to_coding_row)
    path.write_text(f'{{"problem": "p", "tests": [{{"input": [1], "output": {"9" * 5000}}}]}}')
    with pytest.raises(DataError, match=r"rows.jsonl:1: .*4300 digits"):
        load_file(path, to_coding_row)


def test_lines_of_arguments_end_at_new_lines_only() -> None:
    tests = [{"input": '"a\u2028b"\n"c\x85d"', "output": '"\u2029"'}]
    row = {"problem": "p", "tests": [{**test, "testtype": "functional", "fn_name": "f"} for test in tests]}
    assert to_coding_row(row).tests == (Test(input=["a\u2028b", "c\x85d"], output="\u2029"),)


def test_a_signature_that_returns_none_says_that_the_argument_is_changed() -> None:
    row: dict[str, Any] = {"problem": "p", "tests": [{"input": [[0, 1]], "output": [1, 0], "fn_name": "move"}]}
    starter = "class Solution:\n    def move(self, nums: List[int]) -> None:\n        "
    assert to_coding_row(row).rules == ()
    assert to_coding_row({**row, "starter_code": starter}).rules == ("in_place",)
    assert to_coding_row({**row, "problem": f"p\n```python\n{starter}```"}).rules == ("in_place",)
    assert to_coding_row({**row, "starter_code": starter.replace("move", "remove")}).rules == ()


def test_the_output_of_a_call_and_a_list_of_it_are_the_same_only_in_wrapped_rows() -> None:
    test = Test(input=[1], output=3)
    assert judge_call(["gave", [3]], test) == Outcome(how="gave", what=[3])
    same: list[Any] = [3, [3]]
    for value in same:
        assert judge_call(["gave", value], test, ["wrapped"]).how == "passed"
    others: list[Any] = [[3, 4], [4], [[3]], [], None]
    for other in others:
        assert judge_call(["gave", other], test, ["wrapped"]).how == "gave"
    pairs = to_coding_row({"problem": "p", "tests": {**CALL_COLUMNS, "outputs": [[3, 4], [5]]}})
    assert pairs.rules == ("whole_keys",)
    assert judge_call(["gave", 3], pairs.tests[0], ["whole_keys"]).how == "gave"


def test_a_long_number_is_read_and_compared_as_digits() -> None:
    digits = "9" * 5000
    row = {"problem": "p", "tests": [{"input": digits, "output": digits, "testtype": "functional", "fn_name": "f"}]}
    (test,) = to_coding_row(row).tests
    assert test == Test(input=[{LONG: digits}], output={LONG: digits})
    assert judge_call(["other", {LONG: digits}], test).how == "gave"
    assert judge_call(["gave", {LONG: digits}], test).how == "passed"


def test_tests_that_no_task_uses_are_not_kept() -> None:
    tests = [{"input": "x" * size, "output": str(size)} for size in (5, 1, 9, 2, 8, 3, 7)]
    whole = to_coding_row({"problem": "p", "tests": tests})
    cut = trim_tests(whole, 2, 3)
    assert [len(test.input) for test in cut.tests] == [5, 1, 9, 8, 7]
    assert choose_hidden(cut.tests, 2, 3) == choose_hidden(whole.tests, 2, 3)
