"""The layouts of published data sets of programming problems, each converted to the fields of our layout.

    ours, DeepCoder   "problem", "tests"
    LiveCodeBench     "question_content", "public_test_cases", "private_test_cases", "metadata"
    TACO, APPS        "question", "input_output"
    verl, PRIME       "prompt" (text or messages), "reward_model": {"ground_truth"}
    CodeContests      "description", "public_tests", "private_tests", "generated_tests"
    PrimeIntellect    "prompt", "verification_info": {"test_cases"}

Tests that are assertions (HumanEval, MBPP, EvalPlus, KodCode, LeetCodeDataset) are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import DataError
from turnwise_worlds.coding.private_tests import decode_private_tests
from turnwise_worlds.coding.runners import read_whole

_PYTHON3 = (3, "3", "PYTHON3", "python3", "python")
"""Values of the column `language` of CodeContests that mean Python 3."""
_ASSERTIONS = ("test_list", "test", "tests_code", "test_code", "asserts", "entry_point", "assert_case")


def to_our_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with "problem", "tests", "solution", "starter_code" and "metadata" as in our layout, unchecked.

    Raises DataError for an unknown layout, and for a known one that is unusable here.
    """
    if "public_test_cases" in row or "private_test_cases" in row:
        return _from_live_code_bench(row)
    if "input_output" in row:
        return _to_fields(row, ("question", "problem", "prompt"), row["input_output"], "input_output")
    if "reward_model" in row:
        return _from_verl(row)
    if {"public_tests", "private_tests", "generated_tests"} & row.keys():
        return _from_code_contests(row)
    if "verification_info" in row:
        return _from_prime_intellect(row)
    if "tests" in row or "problem" in row:
        return _to_fields(row, ("problem", "question", "prompt"), row.get("tests"), "tests")
    if found := sorted(set(_ASSERTIONS) & row.keys()):
        raise DataError(
            f'tests that are assertions ({", ".join(found)}); this family compares outputs: write "tests": [{{"input": '
            '[arguments], "output": value, "testtype": "functional", "fn_name": name}]'
        )
    raise DataError(
        f'no tests under the keys {sorted(row)}; expected "tests", "input_output", "reward_model", '
        '"public_test_cases", "public_tests" or "verification_info"'
    )


def read_json(value: Any, name: str) -> Any:
    """Return the value of a JSON text, and any other value unchanged. Raises DataError naming the field."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_int=read_whole)
    except (ValueError, RecursionError) as cause:
        raise DataError(f'"{name}" is not valid JSON ({cause})') from None


def _to_fields(row: Mapping[str, Any], statements: tuple[str, ...], tests: Any, name: str) -> dict[str, Any]:
    statement = next((name for name in statements if name in row), statements[0])
    return {
        "problem": _join_messages(row.get(statement)),
        "tests": read_json(tests, name),
        "solution": _solution(row),
        "starter_code": row.get("starter_code") or "",
        "metadata": row.get("metadata") or {},
    }


def _from_live_code_bench(row: Mapping[str, Any]) -> dict[str, Any]:
    tests: list[Any] = []
    for name in ("public_test_cases", "private_test_cases"):
        value = row.get(name) or "[]"
        if isinstance(value, str) and not value.lstrip().startswith(("[", "{")):
            value = decode_private_tests(value)
        part = read_json(value, name)
        if not isinstance(part, list):
            raise DataError(f'"{name}" is of type {type(part).__name__}; expected a list of tests')
        tests += part
    return _to_fields(row, ("question_content", "problem", "prompt"), tests, "tests")


def _from_verl(row: Mapping[str, Any]) -> dict[str, Any]:
    model = row["reward_model"]
    tests = read_json(model.get("ground_truth") if isinstance(model, dict) else None, "reward_model.ground_truth")
    if isinstance(tests, dict) and "inputs" not in tests:
        raise DataError(
            f'"reward_model.ground_truth" has {sorted(tests)}; expected "inputs" and "outputs" (assertions and judging '
            "functions are not run)"
        )
    return _to_fields(row, ("prompt", "problem"), tests, "tests")


def _from_code_contests(row: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("input_file", "output_file"):
        if row.get(name):
            raise DataError(
                f'"{name}" is {row[name]!r}: its programs use files instead of standard input; leave the row out'
            )
    tests = []
    for name in ("public_tests", "private_tests", "generated_tests"):
        part = read_json(row.get(name) or {"input": [], "output": []}, name)
        inputs, outputs = (part.get(key) if isinstance(part, dict) else None for key in ("input", "output"))
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise DataError(f'"{name}" has no "input" and "output" of equal length')
        tests += [{"input": given, "output": wanted} for given, wanted in zip(inputs, outputs, strict=True)]
    return _to_fields(row, ("description", "problem"), tests, "tests")


def _from_prime_intellect(row: Mapping[str, Any]) -> dict[str, Any]:
    info = read_json(row["verification_info"], "verification_info")
    if not isinstance(info, dict):
        raise DataError(f'"verification_info" is {info!r}; expected an object with "test_cases"')
    if info.get("language", "python") not in ("python", "python3"):
        raise DataError(
            f'"verification_info.language" is {info["language"]!r}, but only Python is supported; leave the row out'
        )
    return _to_fields(row, ("prompt", "problem"), info.get("test_cases"), "verification_info.test_cases")


def _join_messages(prompt: Any) -> Any:
    """Return the statement in a prompt of messages: the system and user messages, in order."""
    if not isinstance(prompt, list):
        return prompt
    texts = []
    for number, message in enumerate(prompt):
        role, text = (message.get(key) if isinstance(message, dict) else None for key in ("role", "content"))
        if role not in ("system", "user") or not isinstance(text, str):
            raise DataError(
                f"prompt[{number}] has role {role!r}; a coding problem accepts only text from system and user"
            )
        texts.append(text.strip())
    return "\n\n".join(filter(None, texts))


def _solution(row: Mapping[str, Any]) -> Any:
    """Return the first correct Python program; "" if there is none."""
    for name in ("solution", "gold_standard_solution"):
        if row.get(name):
            return row[name]
    solutions = row.get("solutions")
    if isinstance(solutions, str):
        solutions = read_json(solutions or "[]", "solutions")
    if isinstance(solutions, dict):
        languages, texts = solutions.get("language") or [], solutions.get("solution") or []
        if not isinstance(languages, list) or not isinstance(texts, list):
            raise DataError('"solutions" has no lists "language" and "solution"')
        solutions = [text for language, text in zip(languages, texts, strict=False) if language in _PYTHON3]
    if not isinstance(solutions or [], list):
        raise DataError(f'"solutions" is {solutions!r:.100}; expected a list of programs')
    return next(iter(solutions or ()), "")
