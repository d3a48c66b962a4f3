"""Runs a program on tests in the sandbox and compares what it gives outside of it.

The sandbox gets the program and the inputs, never the wanted outputs, so nothing that runs there can know what to
forge: whatever a program does to its interpreter, it passes a test only by giving the right output for its input.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.environments.repeated_runs import CodeRunner, read_outcomes
from turnwise_sandbox.grading.cases import Case, CaseOutcome, grade_cases
from turnwise_sandbox.types import Limits, Profile, Program

Form = Literal["functional", "stdin"]
"""A program defines a function that is called, or reads standard input and prints."""
How = Literal["passed", "gave", "raised", "died", "timeout"]

RUNNER = """
import json, sys
report, sys.stdout = sys.stdout, sys.stderr
sys.path.insert(0, "")
sys.dont_write_bytecode = True
request = json.load(sys.stdin)
for number, arguments in enumerate(request["calls"]):
    try:
        module = __import__("solution")
        home = module if hasattr(module, request["entry"]) else module.Solution()
        value = getattr(home, request["entry"])(*arguments)
        line = json.dumps([number, ["gave", value]])
    except BaseException as error:
        line = json.dumps([number, ["raised", type(error).__name__]])
    print(line, file=report, flush=True)
"""
"""Reports one line per call, so that what ends the process early leaves the rest without an outcome. A method of a
class `Solution` counts as the function, as in LiveCodeBench; what a program prints goes to standard error."""
PROFILE: Profile = "std"
"""Named, because "auto" lets a program choose one by what it imports, perhaps one that this machine cannot start, and
then its reward would be Invalid instead of 0."""
TOLERANCE = 1e-6
"""Of floating-point numbers, absolute or relative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """An input and the output that it must give."""

    __test__ = False  # not for pytest

    input: Any
    """JSON: the list of arguments of a function, or the text of standard input."""
    output: Any
    """JSON: what the function returns (a tuple as a list), or the text printed, of which words count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a program made of one test."""

    how: How
    """"died": the process ended, by itself or for a limit other than time, before it gave anything. "timeout" is that
    of the run, so with functional tests the call that hung is the first of several."""
    what: Any = None
    """The value or text given, or the name of the exception."""


async def run_tests(
    runner: CodeRunner, program: str, tests: Sequence[Test], *, form: Form, entry: str, limits: Limits, seed: int
) -> list[Outcome]:
    """The outcome of every test, in order.

    Functional tests are calls in one process, which `limits` bound together; each stdin test has a process and limits
    of its own. `entry` is the name of the function. Raises SandboxError when the sandbox itself fails.
    """
    if form == "stdin":
        cases = [Case(stdin=test.input.encode(), expected=test.output.encode()) for test in tests]
        code = Program(code=program.encode(errors="replace"), seed=seed, profile=PROFILE)
        graded = await grade_cases(runner, code, cases, limits=limits, comparison="floats")
        return [_read_case(outcome) for outcome in graded]
    request = {"entry": entry, "calls": [test.input for test in tests]}
    execution = await runner.run(
        Program(
            code=RUNNER,
            stdin=json.dumps(request).encode(),
            files={"solution.py": program.encode(errors="replace")},
            seed=seed,
            profile=PROFILE,
        ),
        limits,
    )
    reported = read_outcomes(execution.stdout, {"gave": 2, "raised": 2})
    silent = Outcome(how="timeout" if execution.limit in ("wall", "cpu") else "died")
    outcomes = [_judge(reported[n], test) if n in reported else silent for n, test in enumerate(tests)]
    ended_well = execution.ok and not execution.stdout_dropped
    return outcomes if ended_well or silent in outcomes else [*outcomes[:-1], silent]


def _judge(report: list[Any], test: Test) -> Outcome:
    how, what = report
    if how == "raised":
        return Outcome(how="raised", what=str(what)[:40])
    return Outcome(how="passed" if is_same(what, test.output) else "gave", what=what)


def _read_case(outcome: CaseOutcome) -> Outcome:
    execution = outcome.execution
    if execution.limit is not None:
        return Outcome(how="timeout" if execution.limit in ("wall", "cpu") else "died")
    if execution.exit_code != 0:
        lines = execution.stderr.decode("utf-8", "replace").strip().splitlines() or [""]
        name = lines[-1].partition(":")[0]
        return Outcome(how="raised", what=name[:40]) if name.isidentifier() else Outcome(how="died")
    text = " ".join(execution.stdout.decode("utf-8", "replace").split())
    return Outcome(how="passed" if outcome.passed else "gave", what=text)


def is_same(actual: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal. True is not 1, and where either number is a float they may differ by
    `TOLERANCE`."""
    if isinstance(actual, list) and isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(is_same, actual, wanted))
    if isinstance(actual, dict) and isinstance(wanted, dict):
        return actual.keys() == wanted.keys() and all(is_same(actual[key], wanted[key]) for key in wanted)
    if isinstance(actual, bool) or isinstance(wanted, bool):
        return actual is wanted
    if isinstance(actual, float) or isinstance(wanted, float):
        numbers = isinstance(actual, int | float) and isinstance(wanted, int | float)
        return numbers and math.isclose(actual, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(actual == wanted)
