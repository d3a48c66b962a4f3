"""Programming problems from a user's JSONL or Parquet file, in our layout and the published ones.

    ours             {"problem", "tests": [{"input", "output"[, "testtype"][, "fn_name"]}][, "solution"]}
    DeepCoder, LCB   the same with "metadata": {"func_name"} in a row or a test, and `tests` as the text of the JSON
    PrimeIntellect   the same with "type" ("function_call" or "stdin_stdout") for "testtype"
    TACO             `tests` as {"inputs": [...], "outputs": [...][, "fn_name"]}

Anything that does not fit raises DataError with file and row. Parquet needs pyarrow, an optional dependency.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.environments.coding.judge import Form, Test
from turnwise.environments.data_rows import load_rows

_FUNCTIONAL = ("functional", "function_call")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingRow:
    """One problem of a file."""

    problem: str
    form: Form
    entry: str
    """The name of the function; "" for programs that read standard input."""
    tests: tuple[Test, ...]
    """At least two, all of one form."""
    solution: str
    """A right program; "" if the row has none."""


def load_problems(path: Path) -> tuple[CodingRow, ...]:
    """The problems of a `.jsonl` or `.parquet` file, in order.

    Raises DataError: no such file, another ending, not UTF-8, no rows, or a malformed row. ConfigError for Parquet
    without pyarrow.
    """
    if path.suffix not in (".jsonl", ".parquet"):
        raise DataError(f"{path}: ends with {path.suffix!r}; give a .jsonl or .parquet file")
    return tuple(row for _, row in load_rows(path, to_coding_row))


def to_coding_row(row: Mapping[str, Any]) -> CodingRow:
    """A row in any of the layouts. Raises DataError naming the field that is missing or wrong."""
    problem, solutions = row.get("problem"), row.get("solutions") or []
    if not isinstance(solutions, list):
        raise DataError(f'"solutions" is {solutions!r:.100}; expected a list of programs')
    solution = row.get("solution") or next(iter(solutions), "")
    if not isinstance(problem, str) or not problem.strip():
        raise DataError(f'"problem" is {problem!r}; expected a non-empty string')
    if not isinstance(solution, str):
        raise DataError(f'"solution" is {solution!r}; expected the text of a program')
    tests = _read_json(row.get("tests"), "tests")
    if isinstance(tests, dict):
        tests = _from_columns(tests)
    if not isinstance(tests, list) or len(tests) < 2 or not all(isinstance(test, dict) for test in tests):
        raise DataError('"tests" must be a list of at least two objects with "input" and "output"')
    entries = {_entry(test, row) for test in tests}
    if len(entries) > 1:
        raise DataError(f'"tests" are of several forms or functions {sorted(entries)}; give a row one of them')
    (entry,) = entries
    form: Form = "functional" if entry else "stdin"
    return CodingRow(
        problem=problem.strip(),
        form=form,
        entry=entry,
        tests=tuple(_read_test(test, form, number) for number, test in enumerate(tests)),
        solution=solution,
    )


def choose_hidden(tests: tuple[Test, ...], num_visible: int, num_hidden: int) -> tuple[list[Test], list[Test]]:
    """The first tests, visible, and of the others those with the longest input, in their order (DeepCoder keeps 15).

    One test at least is hidden.
    """
    num_visible = min(num_visible, len(tests) - 1)
    rest = list(enumerate(tests[num_visible:]))
    longest = sorted(rest, key=lambda pair: len(json.dumps(pair[1].input)), reverse=True)[:num_hidden]
    return list(tests[:num_visible]), [test for _, test in sorted(longest, key=lambda pair: pair[0])]


def _from_columns(tests: Mapping[str, Any]) -> Any:
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise DataError('"tests" has no "inputs" and "outputs" of the same length')
    name = tests.get("fn_name") or ""
    kind = "functional" if name else "stdin"
    return [
        {"input": given, "output": wanted, "testtype": kind, "fn_name": name}
        for given, wanted in zip(inputs, outputs, strict=True)
    ]


def _entry(test: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """The function that a test calls; "" for standard input."""
    if test.get("testtype", test.get("type", "stdin")) not in _FUNCTIONAL:
        return ""
    homes = (test, *(_read_json(home.get("metadata") or {}, "metadata") for home in (test, row)))
    names = [home.get(key) for home in homes if isinstance(home, dict) for key in ("fn_name", "func_name")]
    name = next((name for name in names if isinstance(name, str) and name.isidentifier()), None)
    if name is None:
        raise DataError('a functional test names no function; give it as "fn_name" or in "metadata"."func_name"')
    return name


def _read_test(test: Mapping[str, Any], form: Form, number: int) -> Test:
    if "input" not in test or "output" not in test:
        raise DataError(f'tests[{number}] has {sorted(test)}; expected "input" and "output"')
    given, wanted = test["input"], test["output"]
    if form == "stdin":
        given, wanted = ("\n".join(map(str, text)) if isinstance(text, list) else text for text in (given, wanted))
        if not isinstance(given, str) or not isinstance(wanted, str):
            raise DataError(f"tests[{number}]: input and output of a stdin test must be texts")
        return Test(input=given, output=wanted)
    if isinstance(given, str):  # LiveCodeBench: one JSON value per line and argument
        given = [_read_json(line, f"tests[{number}].input") for line in given.splitlines() if line.strip()]
        wanted = _read_json(wanted, f"tests[{number}].output")
    if not isinstance(given, list):
        raise DataError(f"tests[{number}].input is {given!r}; expected the list of arguments")
    return Test(input=given, output=wanted)


def _read_json(value: Any, name: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as cause:
        raise DataError(f'"{name}" is text that is no JSON ({cause})') from None
