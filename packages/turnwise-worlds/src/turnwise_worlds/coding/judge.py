"""Runs a program on tests in the sandbox and compares its results outside.

The sandbox gets the program and the inputs, never the wanted outputs, so no code there knows what to forge: whatever a
program does to its interpreter, it passes a test only by returning the right output for its input.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from turnwise.environments.repeated_runs import CodeRunner, read_outcomes
from turnwise_sandbox.grading.cases import Case, CaseOutcome, grade_cases
from turnwise_sandbox.types import Limits, Profile, Program
from turnwise_worlds.coding.runners import CALL_RUNNER, STDIN_RUNNER, read_whole

Form = Literal["functional", "stdin"]
"""A program either defines a function that is called, or reads standard input and prints."""
How = Literal["passed", "gave", "raised", "died", "timeout"]
CallRule = Literal["in_place", "wrapped", "whole_keys"]
"""A row's rules for its calls. "in_place": if the function returns None, its first argument after the call is the
result. "wrapped": an output and a list that contains only it are equal (TACO and APPS wrap outputs in a list).
"whole_keys": keys of an argument that are whole numbers are numbers, although JSON made them texts."""

PROFILE: Profile = "std"
"""Fixed, because "auto" would let a program choose a profile by its imports, perhaps one that this machine cannot
start, which would make its reward Invalid instead of 0."""
TOLERANCE = 1e-6
"""Tolerance for floating-point numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """An input and its expected output."""

    __test__ = False  # not for pytest

    input: Any
    """JSON: the list of arguments of a function, or the text of standard input."""
    output: Any
    """JSON: the function's return value (a tuple as a list), or the printed text, which is compared word by word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a program on one test."""

    how: How
    """"died": the process ended, by itself or by a limit other than time, before it returned anything. "timeout" refers
    to the run, so with functional tests the call that hung is the first of several."""
    what: Any = None
    """The returned value or printed text, or the name of the exception."""


async def run_tests(
    runner: CodeRunner,
    program: str,
    tests: Sequence[Test],
    *,
    form: Form,
    entry: str,
    limits: Limits,
    seed: int,
    rules: Collection[CallRule] = (),
) -> list[Outcome]:
    """Run all tests and return their outcomes, in order.

    Functional tests are calls in one process; each may take the real time in `limits`, whose other bounds apply to all
    calls together. Each stdin test has its own process and limits. `entry` is the name of the function. A program with
    an unpaired surrogate is not Python and raises SyntaxError. Raises SandboxError if the sandbox itself fails.
    """
    files = {"solution.py": program.encode("utf-8", "surrogatepass")}
    if form == "stdin":
        cases = [Case(stdin=test.input.encode(), expected=test.output.encode()) for test in tests]
        code = Program(code=STDIN_RUNNER, files=files, seed=seed, profile=PROFILE)
        graded = await grade_cases(runner, code, cases, limits=limits, comparison="floats")
        return [_read_case(outcome) for outcome in graded]
    request = {
        "entry": entry,
        "calls": [test.input for test in tests],
        "rules": sorted(rules),
        "seconds": limits.wall_s,
    }
    limits = replace(limits, wall_s=limits.wall_s * max(1, len(tests)))
    stdin = json.dumps(request).encode()
    execution = await runner.run(
        Program(code=CALL_RUNNER, stdin=stdin, files=files, seed=seed, profile=PROFILE), limits
    )
    reported = read_outcomes(execution.stdout, {"gave": 2, "raised": 2, "other": 2}, read_whole)
    is_late = execution.limit in ("wall", "cpu") or execution.signal == signal.SIGALRM
    silent = Outcome(how="timeout" if is_late else "died")
    outcomes = [judge_call(reported[n], test, rules) if n in reported else silent for n, test in enumerate(tests)]
    ended_well = execution.ok and not execution.stdout_dropped
    return outcomes if ended_well or silent in outcomes else [*outcomes[:-1], silent]


def judge_call(report: Sequence[Any], test: Test, rules: Collection[CallRule] = ()) -> Outcome:
    """Return the outcome of a call that reported `["gave", value]`, `["other", text]` or `["raised", name]`."""
    how, what = report
    if how == "raised":
        return Outcome(how="raised", what=str(what)[:40])
    passed = how == "gave" and (is_same(what, test.output) or ("wrapped" in rules and is_same(what, [test.output])))
    return Outcome(how="passed" if passed else "gave", what=what)


def _read_case(outcome: CaseOutcome) -> Outcome:
    execution = outcome.execution
    if execution.limit is not None:
        return Outcome(how="timeout" if execution.limit in ("wall", "cpu") else "died")
    if execution.exit_code != 0:
        line = execution.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        name = line.partition(":")[0].rpartition(".")[2]
        return Outcome(how="raised", what=name[:40]) if name.isidentifier() else Outcome(how="died")
    text = " ".join(execution.stdout.decode("utf-8", "replace").split())
    return Outcome(how="passed" if outcome.passed else "gave", what=text)


def is_same(actual: Any, wanted: Any) -> bool:
    """Return whether two JSON values are equal. True is not 1. A float may differ from a wanted whole number by
    `TOLERANCE`, and if a float is wanted, a number may differ from it by `TOLERANCE`, absolute or relative."""
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(is_same, actual, wanted))
    if isinstance(actual, dict) and isinstance(wanted, dict):
        return actual.keys() == wanted.keys() and all(is_same(actual[key], wanted[key]) for key in wanted)
    if isinstance(actual, bool) or isinstance(wanted, bool):
        return actual is wanted
    if isinstance(actual, float) or isinstance(wanted, float):
        numbers = isinstance(actual, int | float) and isinstance(wanted, int | float)
        return numbers and _is_close(actual, wanted)
    return bool(actual == wanted)


def _is_close(actual: float, wanted: float) -> bool:
    if actual == wanted:  # infinities, too
        return True
    if not all(isinstance(number, int) or math.isfinite(number) for number in (actual, wanted)):
        return False
    scale = Fraction(1) if isinstance(wanted, int) else max(Fraction(1), abs(Fraction(wanted)))
    return abs(Fraction(actual) - Fraction(wanted)) <= Fraction(TOLERANCE) * scale
