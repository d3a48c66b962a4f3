"""Programming problems from a user's JSONL or Parquet file, in our layout and the published ones.

    ours             {"problem", "tests": [{"input", "output"[, "testtype"][, "fn_name"]}][, "solution"]
                     [, "starter_code"]}
    DeepCoder, LCB   the same with "metadata": {"func_name"} in a row or a test, and `tests` as the text of the JSON
    PrimeIntellect   the same with "type" ("function_call" or "stdin_stdout") for "testtype"
    TACO, APPS       `tests` as {"inputs": [...], "outputs": [...][, "fn_name"]}

The files of the data sets themselves are read as well (`layouts`). Anything that does not fit raises DataError with
file and row. Parquet needs pyarrow, an optional dependency.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise.core.errors import DataError
from turnwise_worlds.coding.environment import strip_fence
from turnwise_worlds.coding.judge import CallRule, Form, Test
from turnwise_worlds.coding.layouts import read_json, to_our_fields

_FUNCTIONAL = ("functional", "function_call")
_STDIN = ("stdin", "stdin_stdout")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingRow:
    """One problem from a file."""

    problem: str
    form: Form
    entry: str
    """The name of the function; "" for programs that read standard input."""
    tests: tuple[Test, ...]
    """At least one, all of one form."""
    solution: str
    """A correct program; "" if the row has none."""
    starter: str = ""
    """The code to start from; "" if the row has none."""
    rules: tuple[CallRule, ...] = ()


def trim_tests(row: CodingRow, num_visible: int, num_hidden: int) -> CodingRow:
    """Return the row with only the tests that `choose_hidden` keeps: all tests of LiveCodeBench take 12 GB."""
    visible, hidden = choose_hidden(row.tests, num_visible, num_hidden)
    return replace(row, tests=(*visible, *hidden))


def to_coding_row(row: Mapping[str, Any]) -> CodingRow:
    """Convert a row in any of the layouts. Raises DataError naming the field that is missing or wrong."""
    fields = to_our_fields(row)
    problem, solution, starter = (fields[name] for name in ("problem", "solution", "starter_code"))
    if not isinstance(problem, str) or not problem.strip():
        raise DataError(f'"problem" is {problem!r}; expected a non-empty string')
    for name, text in (("solution", solution), ("starter_code", starter)):
        if not isinstance(text, str):
            raise DataError(f'"{name}" is {text!r}; expected a program as text')
    tests, is_columns = fields["tests"], isinstance(fields["tests"], dict)
    if is_columns:
        tests = _from_columns(tests)
    if not isinstance(tests, list) or not tests or not all(isinstance(test, dict) for test in tests):
        raise DataError('"tests" must be a list of at least one object with "input" and "output"')
    entries = {_entry(test, fields) for test in tests}
    if len(entries) > 1:
        raise DataError(f'"tests" mixes forms or functions {sorted(entries)}; use a single one per row')
    (entry,) = entries
    form: Form = "functional" if entry else "stdin"
    read = tuple(_read_test(test, form, number) for number, test in enumerate(tests))
    rules: list[CallRule] = []
    if form == "stdin" and not any(test.output.split() for test in read):
        raise DataError("every expected output is empty, so a program that prints nothing would pass")
    if form == "functional" and (node := _find_node(entry, f"{starter}\n{problem}")):
        raise DataError(f"{entry} takes or returns a {node}, but tests support only plain values; remove the row")
    if form == "functional" and _changes_in_place(entry, f"{starter}\n{problem}"):
        rules.append("in_place")
    if form == "functional" and (is_columns or all(test.get("type") == "function_call" for test in tests)):
        rules.append("whole_keys")
        if all(isinstance(test.output, list) and len(test.output) == 1 for test in read):
            rules.append("wrapped")
            read = tuple(Test(input=test.input, output=test.output[0]) for test in read)
    _check_texts({"problem": problem, "solution": solution, "starter_code": starter})
    _check_texts({f"tests[{number}]": [test.input, test.output] for number, test in enumerate(read)})
    return CodingRow(
        problem=problem.strip(),
        form=form,
        entry=entry,
        tests=read,
        solution=strip_fence(solution),
        starter=strip_fence(starter).strip("\n") if starter.strip() else "",
        rules=tuple(rules),
    )


def choose_hidden(tests: tuple[Test, ...], num_visible: int, num_hidden: int) -> tuple[list[Test], list[Test]]:
    """Return the first tests, which are visible, and the hidden ones: those of the others with the longest inputs, in
    their order (DeepCoder keeps 15).

    At least one test is hidden.
    """
    num_visible = min(num_visible, len(tests) - 1)
    rest = list(enumerate(tests[num_visible:]))
    longest = sorted(rest, key=lambda pair: len(json.dumps(pair[1].input)), reverse=True)[:num_hidden]
    return list(tests[:num_visible]), [test for _, test in sorted(longest, key=lambda pair: pair[0])]


def _from_columns(tests: Mapping[str, Any]) -> Any:
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise DataError('"tests" has no "inputs" and "outputs" of equal length')
    name = tests.get("fn_name") or ""
    kind = "functional" if name else "stdin"
    return [
        {"input": given, "output": wanted, "testtype": kind, "fn_name": name}
        for given, wanted in zip(inputs, outputs, strict=True)
    ]


def _entry(test: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Return the function that a test calls; "" for standard input."""
    kind = test.get("testtype") or test.get("type") or ("functional" if test.get("fn_name") else "stdin")
    if kind in _STDIN:
        return ""
    if kind not in _FUNCTIONAL:
        raise DataError(f"a test is of type {kind!r}; expected one of {', '.join((*_FUNCTIONAL, *_STDIN))}")
    homes = (test, *(read_json(home.get("metadata") or {}, "metadata") for home in (test, fields)))
    names = [home.get(key) for home in homes if isinstance(home, dict) for key in ("fn_name", "func_name")]
    name = next((name for name in names if isinstance(name, str) and name.isidentifier()), None)
    if name is None:
        raise DataError('a functional test names no function; add it as "fn_name" or in "metadata"."func_name"')
    return name


def _read_test(test: Mapping[str, Any], form: Form, number: int) -> Test:
    if "input" not in test or "output" not in test:
        raise DataError(f'tests[{number}] has {sorted(test)}; expected "input" and "output"')
    given, wanted = test["input"], test["output"]
    if form == "stdin":
        given, wanted = ("\n".join(map(str, text)) if isinstance(text, list) else text for text in (given, wanted))
        if not isinstance(given, str) or not isinstance(wanted, str):
            raise DataError(f"tests[{number}]: input and output of a stdin test must be text")
        return Test(input=given, output=wanted)
    if isinstance(given, str):  # LiveCodeBench: one JSON value per line and argument
        given = [read_json(line, f"tests[{number}].input") for line in given.split("\n") if line.strip()]
        wanted = read_json(wanted, f"tests[{number}].output")
    if not isinstance(given, list):
        raise DataError(f"tests[{number}].input is {given!r}; expected a list of arguments")
    if any(isinstance(value, float) and math.isnan(value) for value in _leaves(wanted)):
        raise DataError(f"tests[{number}].output contains NaN, which equals nothing; remove the test")
    return Test(input=given, output=wanted)


def _leaves(value: Any) -> Iterable[Any]:
    """Yield the values inside lists and objects, at any depth."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if parts is None else (leaf for part in parts for leaf in _leaves(part))


def _changes_in_place(entry: str, text: str) -> bool:
    """Return whether a signature in the text says that the function returns None."""
    return re.search(rf"\bdef\s+{entry}\s*\([^)]*\)\s*->\s*None\b", text) is not None


def _find_node(entry: str, text: str) -> str | None:
    """Return the class of LeetCode's lists, trees or graphs that a signature names: no test can contain one."""
    signature = re.search(rf"\bdef\s+{entry}\s*\([^)]*\)[^:]*:", text)
    named = re.search(r"\b(ListNode|TreeNode|Node|NestedInteger)\b", signature[0]) if signature else None
    return named[1] if named else None


def _check_texts(values: Mapping[str, Any]) -> None:
    """Raise DataError for an unpaired surrogate, which JSON can escape but nothing can encode."""
    for name, value in values.items():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as cause:
            half = cause.object[cause.start : cause.start + 1].encode("unicode_escape").decode()
            raise DataError(f'"{name}" contains {half}, half of a surrogate pair; remove it') from None
