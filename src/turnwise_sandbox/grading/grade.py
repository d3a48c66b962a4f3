"""Grades a candidate's code with tests that it cannot touch.

An exit status, a printed "PASS" or a report file proves nothing when the candidate's code runs in the process that
makes it. So the candidate (the *worker*) and the tests (the *grader*) run as two programs in two places of the sandbox.
In the grader, importing the candidate's module gives stand-ins whose every operation is a message to the worker
(guest/proxy.py); values of built-in types are copied, and only copies are ever believed to be equal to what a test
expects.

What still is the candidate's word: comparisons between two of its own objects, the truth of its own objects, and how
often it calls a callback. What works differently over the channel: a list, dict or set that comes out of the candidate
is a copy (changing it does not change the candidate's), `type(x)` and `x.__class__` of a candidate's object are not its
class (`isinstance` works), tests cannot subclass the candidate's classes except exceptions, and the two do not share
files or standard input. Suites that need any of that run with `isolation="shared"`, and their grade says `forgeable`.
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
"""The name of the guest modules inside the sandbox."""
DEADLINE_SHARE = 0.8
"""Share of the wall limit after which a worker that does not answer is given up, so that the grader still reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A test that did not pass."""

    id: str
    message: str
    """The reason, at most 300 characters. Written by the tests' process, but may quote the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What the tests say."""

    passed: tuple[str, ...]
    """Ids of the tests that passed."""
    failed: tuple[Problem, ...] = ()
    """An assertion did not hold."""
    errors: tuple[Problem, ...] = ()
    """Something else was raised, the worker died or fell silent, or the test was collected and never ran."""
    skipped: tuple[Problem, ...] = ()
    """Skipped, or failed as announced (xfail). A test that looks at the candidate before it skips can be made to
    skip."""
    complete: bool
    """The grader ended by itself with status 0 and accounted for every test it found."""
    reason: str | None = None
    """Why the grade is not complete; None when it is."""
    forgeable: bool = False
    """Candidate and tests shared a process (`isolation="shared"`): a candidate that wants to can write this grade
    itself."""
    worker: Execution | None
    """None with `isolation="shared"`."""
    grader: Execution

    @property
    def status(self) -> Status:
        """ "passed": complete, at least one test passed and nothing else happened (a skipped test counts against it).
        "error": not complete. A candidate can provoke that (by exhausting the grader's memory with huge values), so a
        reward should treat it like "failed" unless the sandbox itself raised."""
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
        kind: "asserts": each `.py` file is a script and one test; the candidate's public names need no import there.
        "unittest",
            "pytest": every `.py` file but `conftest.py` and `__init__.py` is searched for tests.
        candidate: relative paths to contents, as the worker sees them (it starts in their folder).
        module: the candidate's module or package, as the tests import it. Other modules of the candidate are not
        importable by the tests.
        tests: relative paths to contents, data files included. With `isolation="shared"` they are laid over the
        candidate's files.
        limits: for each of the two programs; None is `Limits()`. Past 0.8 of `wall_s` the worker counts as silent.
        allow_operators: believe the candidate's objects in `in`, ordering and arithmetic with values of the tests
        (guest/proxy.py).
            Needed where the candidate is asked for such a class; an object that agrees with everything may then pass.
        profile: of the worker; the grader takes "pytest" or "std" itself.
        seed: of both programs.

    Raises:
        ValueError: no test file, a module that is not among the candidate's files, or a path that leaves its folder.
        SandboxError: the sandbox itself failed.
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
    """Raises ValueError for a request that cannot give a grade."""
    if not files:
        raise ValueError(
            f"no test file among {sorted(tests)}: give at least one .py file besides conftest.py and __init__.py"
        )
    path = module.replace(".", "/")
    if not {f"{path}.py", f"{path}/__init__.py"} & candidate.keys() and not any(
        name.startswith(path + "/") for name in candidate
    ):
        raise ValueError(f"module {module!r} is not among the candidate's files {sorted(candidate)}: give {path}.py")
    for name in (*candidate, *tests):
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise ValueError(f"file {name!r} is not a path below its folder")


def below(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files, moved into `folder`."""
    return {f"{folder}/{path}": content for path, content in files.items()}


@functools.cache
def guest_sources() -> tuple[tuple[str, bytes], ...]:
    """The guest modules under the name they have inside the sandbox, where turnwise is not installed."""
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
    """The guest modules as files of a program."""
    return dict(guest_sources())


def to_grade(worker: Execution | None, grader: Execution, *, forgeable: bool) -> Grade:
    """Read the grader's report. One that is cut, malformed or misses a test, or a grader that did not exit with 0, is
    not complete."""
    found: dict[str, list[Problem]] = {"passed": [], "failed": [], "error": [], "skipped": []}
    reason = why_not_finished(grader)
    if reason is None:
        try:
            report = json.loads(grader.stdout)
            for test, outcome, message in report["results"]:
                found[outcome].append(Problem(id=str(test), message=str(message)))
            if [test for test, _, _ in report["results"]] != report["collected"]:
                reason = "the report does not account for every test"
        except (ValueError, KeyError, TypeError) as problem:
            reason = f"the report cannot be read: {type(problem).__name__}"
    if reason is not None:
        found = {outcome: [] for outcome in found}
    return Grade(
        passed=tuple(test.id for test in found["passed"]),
        failed=tuple(found["failed"]),
        errors=tuple(found["error"]),
        skipped=tuple(found["skipped"]),
        complete=reason is None,
        reason=reason,
        forgeable=forgeable,
        worker=worker,
        grader=grader,
    )


def why_not_finished(grader: Execution) -> str | None:
    """None when the grader ended by itself with status 0 and its whole output is here."""
    if grader.limit is not None:
        return f"the grader hit its {grader.limit} limit"
    if grader.exit_code != 0:
        return (
            f"the grader ended with status {grader.exit_code}, signal {grader.signal}: "
            f"{grader.stderr[-200:].decode('utf-8', 'replace')}"
        )
    return "the grader printed too much" if grader.stdout_dropped else None
