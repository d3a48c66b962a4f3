"""Grades a candidate's code by tests that it cannot touch.

If the candidate's code runs in the process that reports the result, it can forge an exit status, a printed "PASS" or a
report file. So the candidate (the *worker*) and the tests (the *grader*) run as two isolated programs. When a test
imports the candidate's module it gets stand-ins, whose every operation is a message to the worker (guest/proxy.py).
Values of built-in types are copied, and only copies can equal a value that a test expects.

Three results still come from the candidate: comparisons of two of its own objects (counted as its `words`), the truth
value of its objects, and how often it calls a callback. Some code behaves differently over the channel: a list, dict or
set from the candidate is a copy, an object that compares or calculates with a value of the tests is not believed, and
the two programs share neither files nor standard input. Suites that need any of this run with `isolation="shared"`, and
their grade says `forgeable`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from turnwise_sandbox.grading.channel import GradingSandbox
from turnwise_sandbox.types import Execution, Limits, Profile, Program

Kind = Literal["pytest", "unittest", "asserts"]
Isolation = Literal["separate", "shared"]
Status = Literal["passed", "failed", "error"]

GUEST_PACKAGE = "grading_guest"
"""Name of the guest modules' package inside the sandbox."""
DEADLINE_SHARE = 0.8
"""Part of the wall limit after which a silent worker counts as lost, so that the grader has time to report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A test that did not pass."""

    id: str
    message: str
    """The reason, in at most 300 characters. Comes from the tests' process, but may quote the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The results of the tests."""

    passed: tuple[str, ...]
    """Ids of the tests that passed."""
    failed: tuple[Problem, ...] = ()
    """Tests with an assertion that failed."""
    errors: tuple[Problem, ...] = ()
    """Tests that raised another exception, lost the worker, or were collected and never ran."""
    skipped: tuple[Problem, ...] = ()
    """Tests that were skipped or failed as announced (xfail). The candidate can cause a skip if the test asks the
    candidate first."""
    complete: bool
    """Whether the grader ended by itself with status 0 and reported on every test it found."""
    reason: str | None = None
    """Why the grade is incomplete; None if it is complete."""
    forgeable: bool = False
    """Whether candidate and tests shared a process (`isolation="shared"`), so that the candidate could write this
    grade."""
    worker: Execution | None
    """How the candidate's program ended; None with `isolation="shared"`."""
    grader: Execution
    """How the tests' program ended."""

    @property
    def status(self) -> Status:
        """The grade in one word.

        "passed" means complete, with at least one passed test and no other outcome, not even a skipped test. "error"
        means incomplete. A candidate can cause an error, for example by exhausting the grader's memory with huge
        values, so a reward should treat it like "failed"."""
        if not self.complete:
            return "error"
        return "passed" if self.passed and not (self.failed or self.errors or self.skipped) else "failed"


async def grade(
    sandbox: GradingSandbox,
    *,
    kind: Kind,
    candidate: Mapping[str, bytes],
    module: str,
    tests: Mapping[str, bytes],
    limits: Limits | None = None,
    isolation: Isolation = "separate",
    allow_operators: bool = False,
    profile: Profile = "auto",
    seed: int = 0,
) -> Grade:
    """Run `tests` against `candidate`.

    Args:
        kind: With "asserts", each `.py` file is a script and one test, and the candidate's public names need no import.
            With "unittest" and "pytest", every `.py` file but `conftest.py` and `__init__.py` is searched for tests.
        candidate: Relative paths to contents; the worker starts in their folder.
        module: The candidate's module or package, as the tests import it. The tests can import no other module of the
            candidate.
        tests: Relative paths to contents, including data files. With `isolation="shared"` they replace files of the
            candidate with the same path.
        limits: Limits of each of the two programs; None means `Limits()`. After 0.8 of `wall_s` the worker counts as
            lost.
        allow_operators: Trust the candidate's objects in `in`, ordering and arithmetic with values of the tests
            (guest/proxy.py). Needed if the task asks for such a class; an object that agrees with everything may then
            pass.
        profile: Profile of the worker; the grader's is "pytest" or "std".
        seed: Seed of both programs.

    Raises:
        ValueError: There is no test file, the module is not among the candidate's files, or a path leaves its folder.
        SandboxError: The sandbox itself failed.
    """
    limits = limits or Limits()
    files = sorted(
        path for path in tests if path.endswith(".py") and path.rsplit("/", 1)[-1] not in ("conftest.py", "__init__.py")
    )
    check_request(candidate, module, tests, files)
    code = {
        "worker": f"from {GUEST_PACKAGE}.worker import main\nmain('candidate')\n",
        "grader": f"from {GUEST_PACKAGE}.grader import main\nmain({', '.join(map(repr, ('tests', kind, files)))}, ",
    }
    start = "import os, sys\nsys.path.insert(0, os.path.abspath('guest'))\n"
    deadline_s = limits.wall_s * DEADLINE_SHARE
    grader_profile: Profile = "pytest" if kind == "pytest" else "std"
    if isolation == "shared":
        program = Program(
            code=f"{start}{code['grader']}None, {deadline_s!r}, {allow_operators!r})\n",
            files=guest_files() | below("tests", {**candidate, **tests}),
            seed=seed,
            profile=grader_profile,
        )
        return to_grade(None, await sandbox.run(program, limits), forgeable=True)
    worker = Program(
        code=start + code["worker"], files=guest_files() | below("candidate", candidate), seed=seed, profile=profile
    )
    grader = Program(
        code=f"{start}{code['grader']}{module!r}, {deadline_s!r}, {allow_operators!r})\n",
        files=guest_files() | below("tests", tests),
        seed=seed,
        profile=grader_profile,
    )
    return to_grade(*await sandbox.run_pair(worker, grader, limits), forgeable=False)


def check_request(candidate: Mapping[str, bytes], module: str, tests: Mapping[str, bytes], files: list[str]) -> None:
    """Raise ValueError for a request that cannot be graded."""
    if not files:
        raise ValueError(
            f"no test file among {sorted(tests)}: add at least one .py file other than conftest.py and __init__.py"
        )
    path = module.replace(".", "/")
    if not {f"{path}.py", f"{path}/__init__.py"} & candidate.keys() and not any(
        name.startswith(path + "/") for name in candidate
    ):
        raise ValueError(f"module {module!r} is not among the candidate's files {sorted(candidate)}: add {path}.py")
    for name in (*candidate, *tests):
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise ValueError(f"file {name!r} is not a path inside its folder")


def below(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files with their paths moved into `folder`."""
    return {f"{folder}/{path}": content for path, content in files.items()}


def guest_modules() -> dict[str, str]:
    """Name to source of each guest module, for callers that build the package in the sandbox themselves."""
    start = f"guest/{GUEST_PACKAGE}/"
    return {path.removeprefix(start).removesuffix(".py"): text.decode() for path, text in guest_sources()}


@functools.cache
def guest_sources() -> tuple[tuple[str, bytes], ...]:
    """Path and source of each guest module inside the sandbox, where they form a separate package."""
    home = f"{__package__}.guest"
    sources = {
        item.name: item.read_text(encoding="utf-8")
        for item in resources.files(home).iterdir()
        if item.name.endswith(".py")
    }
    return tuple(
        (f"guest/{GUEST_PACKAGE}/{name}", text.replace(home, GUEST_PACKAGE).encode())
        for name, text in sorted(sources.items())
    )


def guest_files() -> dict[str, bytes]:
    """Path to source of each guest module, as files of a program."""
    return dict(guest_sources())


def to_grade(worker: Execution | None, grader: Execution, *, forgeable: bool) -> Grade:
    """The grade in the grader's report. It is incomplete if the report is cut, malformed or misses a test, or if the
    grader did not exit with status 0."""
    outcomes: dict[str, list[Problem]] = {"passed": [], "failed": [], "error": [], "skipped": []}
    reason = why_not_finished(grader)
    if reason is None:
        try:
            report = json.loads(grader.stdout)
            for test, outcome, message in report["results"]:
                outcomes[outcome].append(Problem(id=str(test), message=str(message)))
            if [test for test, _, _ in report["results"]] != report["collected"]:
                reason = "the report does not account for every test"
        except (ValueError, KeyError, TypeError) as problem:
            reason = f"the report cannot be read: {type(problem).__name__}"
    if reason is not None:
        outcomes = {outcome: [] for outcome in outcomes}
    return Grade(
        passed=tuple(test.id for test in outcomes["passed"]),
        failed=tuple(outcomes["failed"]),
        errors=tuple(outcomes["error"]),
        skipped=tuple(outcomes["skipped"]),
        complete=reason is None,
        reason=reason,
        forgeable=forgeable,
        worker=worker,
        grader=grader,
    )


def why_not_finished(grader: Execution) -> str | None:
    """Why the grader's report is incomplete; None if the grader ended by itself with status 0 and lost no output."""
    if grader.limit is not None:
        return f"the grader hit its {grader.limit} limit"
    if grader.exit_code != 0:
        return (
            f"the grader ended with status {grader.exit_code}, signal {grader.signal}: "
            f"{grader.stderr[-200:].decode('utf-8', 'replace')}"
        )
    return "the grader printed too much" if grader.stdout_dropped else None
