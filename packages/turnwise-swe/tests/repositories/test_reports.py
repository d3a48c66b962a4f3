"""What the launcher printed becomes a run; whatever is missing or malformed is a problem, never a pass."""

import json
from typing import Any

import pytest

from turnwise_sandbox.types import Execution
from turnwise_swe.repositories.testing import TestRun, read_run

START = {"kind": "start", "id": "t::a"}
TEST = {"kind": "test", "id": "t::a", "status": "passed", "duration_s": 0.25, "cpu_s": 0.125}
COLLECTED = {"kind": "collected", "ids": ["t::a", "t::b"], "unseeded": ["t::b"]}
END, EXIT = {"kind": "end", "code": 1}, {"kind": "exit", "code": 0, "is_late": False, "output": "1 passed"}


def read(*rows: dict[str, Any], tail: bytes = b"", **execution: Any) -> TestRun:
    stdout = b"".join(json.dumps(row).encode() + b"\n" for row in rows) + tail
    fields: dict[str, Any] = {"stdout": stdout, "stderr": b"", "exit_code": 0}
    return read_run(Execution(**fields | execution))


def test_a_whole_run() -> None:
    run = read(COLLECTED, START, TEST | {"entered": ["m.py::f"], "wrote": ["t/x"]}, END, EXIT)
    assert (run.problem, run.is_tampered, run.running, run.output) == (None, False, None, "1 passed")
    assert run.statuses == {"t::a": "passed"}
    assert (run.outcomes["t::a"].duration_s, run.outcomes["t::a"].cpu_s) == (0.25, 0.125)
    assert (run.collected, run.unseeded) == (("t::a", "t::b"), frozenset({"t::b"}))
    assert (dict(run.entered), dict(run.wrote)) == ({"t::a": frozenset({"m.py::f"})}, {"t::a": ("t/x",)})


@pytest.mark.parametrize(
    ("rows", "execution", "problem"),
    [
        ((COLLECTED, START, TEST, EXIT), {}, "process ended with status 0 before its report did"),
        ((COLLECTED, START, TEST, END), {"exit_code": None, "signal": 9}, "signal 9, without a report"),
        ((COLLECTED, START, TEST, END), {"limit": "memory"}, "hit its memory limit"),
        ((COLLECTED, START, EXIT | {"is_late": True}), {}, "longer than its deadline"),
        ((COLLECTED, START), {"limit": "wall", "exit_code": None}, "longer than its deadline"),
        ((), {}, "without a report"),
    ],
)
def test_a_run_that_did_not_come_to_its_end(
    rows: tuple[dict[str, Any], ...], execution: dict[str, Any], problem: str
) -> None:
    run = read(*rows, **execution)
    assert run.problem is not None
    assert problem in run.problem
    assert run.is_late == ("deadline" in problem)
    assert not run.is_tampered


def test_the_test_that_was_running_is_named() -> None:
    second = {"kind": "start", "id": "t::b"}
    assert read(COLLECTED, START, TEST, second, EXIT | {"is_late": True}).running == "t::b"


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "tampered", "what": "forged"},
        TEST | {"status": "PASSED"},
        TEST | {"duration_s": "long"},
        {"kind": "test", "id": "t::a"},
        {"no": "kind"},
        [],
    ],
)
def test_a_malformed_report_counts_as_tampered(row: Any) -> None:
    run = read(COLLECTED, row, END, EXIT)
    assert run.is_tampered
    assert run.problem


def test_a_line_cut_by_the_end_of_the_launcher_is_no_forgery() -> None:
    run = read(COLLECTED, START, TEST, tail=b'{"kind": "te', exit_code=None, signal=9)
    assert (run.is_tampered, run.statuses) == (False, {"t::a": "passed"})
    assert run.problem


def test_files_that_were_not_collected_are_listed() -> None:
    rows = [{"kind": "not collected", "path": "t", "status": s, "message": "m", "details": ""} for s in ("failed",)]
    run = read({"kind": "collected", "ids": []}, *rows, END, EXIT)
    assert (run.not_collected["t"].status, run.not_collected["t"].message) == ("error", "m")
