"""Generated problems: answers against real Python, slips that raise what they should, disjoint splits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.environments.math_code.problems import KINDS, Problem, build_problem, split_of


def run_all(programs: list[str]) -> list[tuple[str, str]]:
    """(stdout, last line of stderr) of each program, run one after the other in one fresh interpreter."""
    driver = (
        "import contextlib, io, json, sys, traceback\n"
        "for code in json.load(sys.stdin):\n"
        "    out, err = io.StringIO(), ''\n"
        "    with contextlib.redirect_stdout(out):\n"
        "        try: exec(compile(code, '<code>', 'exec'), {})\n"
        "        except Exception as e: err = ''.join(traceback.format_exception(e)).strip().splitlines()[-1]\n"
        "    print(json.dumps([out.getvalue(), err]))\n"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", driver], input=json.dumps(programs), capture_output=True, text=True, check=True
    )
    return [tuple(json.loads(line)) for line in run.stdout.splitlines()]


def problems(kind: str, count: int) -> list[Problem]:
    return [build_problem(kind, "train", Random(seed)) for seed in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_solution_prints_the_answer(kind: str) -> None:
    some = problems(kind, 200)
    for problem, (out, err) in zip(some, run_all([p.solution for p in some]), strict=True):
        assert (out, err) == (f"{problem.answer}\n", ""), problem.solution
        assert 0 <= problem.answer < 100


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.slip])
def test_a_slip_always_raises_the_error_it_is_known_for(kind: str) -> None:
    some = problems(kind, 50)
    for out, err in run_all([p.slip or "" for p in some]):
        assert out == ""
        assert err.startswith(KINDS[kind].error)  # an interpreter may add a suggestion


def test_the_obvious_program_fails_on_half_of_the_equations_and_is_right_on_the_others() -> None:
    some = problems("equation", 300)
    raised = 0
    for problem, (out, err) in zip(some, run_all([p.attempt for p in some]), strict=True):
        if err:
            assert err == KINDS["equation"].error
            raised += 1
        else:
            assert out == f"{problem.answer}\n"
    assert 120 <= raised <= 180  # 300 / 2, within 3.5 standard deviations of sqrt(75) = 8.7


def test_answers_by_hand() -> None:
    assert Problem(kind="chain", parts=(37, "*", 48, "-", 15)).answer == 61  # 1776 - 15 = 1761
    assert Problem(kind="word", parts=(37, 48, 15, 29)).answer == 21  # 1761 = 60 * 29 + 21
    assert Problem(kind="power", parts=(10, 3, 17, 0)).answer == 14  # 1000 = 58 * 17 + 14
    assert Problem(kind="count", parts=(5, 10, 5, 0)).answer == 3  # 0, 1, 4, 9, 6: three are below 5
    assert Problem(kind="equation", parts=(12, 20, 16)).answer == 3  # 12, 4, 16


@given(kind=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 2**32))
def test_splits_share_no_question_and_numbers_stand_alone(kind: str, seed: int) -> None:
    for split in ("train", "heldout"):
        problem = build_problem(kind, split, Random(seed))
        assert split_of(problem.question) == split
        texts = (problem.question, problem.solution, problem.attempt, problem.slip or "")
        # Every number is a token of its own in all of these: a space before it, and none of more than two digits but
        # the 100.
        for text in texts:
            numbers = re.findall(r"(.?)(\d+)", text)
            assert all(before in " -" for before, _ in numbers)
            assert all(len(number) <= 2 or number == "100" for _, number in numbers)
