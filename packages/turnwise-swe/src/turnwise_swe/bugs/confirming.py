"""Confirm bugs: run the selected tests on the edited tree, in a process that never imported the package before."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import SandboxError
from turnwise_sandbox.types import Execution, Limits, Sandbox
from turnwise_swe.bugs.programs import LIMITS, read_rows, run_guest
from turnwise_swe.bugs.selection import (
    MAX_FAILING,
    MAX_NEAR,
    NUM_NEIGHBOURS,
    Selection,
    choose,
    cpu_limit_s,
)
from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.repository import Repository
from turnwise_swe.repositories.testing import MAX_TEST_S, TestRun, build_request, read_run, suite_of

NUM_REHEARSED = 10
"""Number of tests that a program first runs without a bug, to learn what they import."""
MIN_BUGS_REHEARSED = 3
"""From this many bugs per program on, a rehearsal costs less than the imports in each fork."""
IMPORT_CPU_S, UNREHEARSED_CPU_S = 3, 10
"""Processor seconds that a fork may use beside its tests, for imports and reports: after a rehearsal, and without
one."""
IDLE_SHARE = 6
"""Factor from a fork's processor seconds to the real time it may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """The edited files, and the tests to run with them."""

    files: Mapping[str, bytes]
    """Path to new content; each file must exist."""
    tests: tuple[str, ...]
    """Ids of tests that pass without the bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """The two lists of tests in an instance."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Outcomes of the tests with the bug in place."""

    failing: Mapping[str, Outcome]
    """Tests that pass without the bug and do not pass with it. A test that did not run has an empty error."""
    passing: tuple[str, ...]
    problem: str = ""
    """Why the outcomes do not count; "" if they do."""
    is_late: bool = False
    """Whether the run was stopped at its deadline."""
    cpu_s: float = 0.0


async def confirm(
    sandbox: Sandbox, repository: Repository, bugs: Sequence[Bug], *, limits: Limits = LIMITS
) -> tuple[list[Confirmed], float]:
    """Confirm bugs one after the other. Returns the results in the order of the bugs, and the processor seconds of all
    programs together.

    Each runs in a process in which no module of the package was imported before. A bug that ends the whole program, or
    that changes other files of its tree, is followed by a new program. Raises SandboxError if the sandbox fails."""
    results: list[Confirmed] = []
    cpu_s = 0.0
    while len(results) < len(bugs):
        rest = bugs[len(results) :]
        execution = await run_guest(sandbox, repository, "confirm.py", build_order(repository, rest), limits)
        cpu_s += execution.cpu_s
        rows = read_rows(execution)
        if not rows and not results and not execution.limit:
            end = execution.stderr[-500:].decode("utf-8", "replace")
            raise SandboxError(f"{repository.key}: no bug could be confirmed (status {execution.exit_code}). {end}")
        results += [to_confirmed(row, bug) for row, bug in zip(rows, rest, strict=False)]
        if not rows:
            results.append(Confirmed(failing={}, passing=(), problem="its program ended"))
    return results, cpu_s


def build_order(repository: Repository, bugs: Sequence[Bug]) -> dict[str, Any]:
    """The order that `guest/confirm.py` reads."""
    request = build_request(
        suite_of(repository), ids=(), hash_seed=0, is_reversed=False, observes=False, test_limit_s=MAX_TEST_S
    )
    tests = list(dict.fromkeys(test for bug in bugs for test in bug.tests))
    of_files = {test.split("::")[0]: test for test in tests}  # one from each file, so that all are imported
    durations = repository.baseline.durations
    is_rehearsed = len(bugs) >= MIN_BUGS_REHEARSED
    import_s = IMPORT_CPU_S if is_rehearsed else UNREHEARSED_CPU_S
    limits = [import_s + cpu_limit_s(bug.tests, durations) for bug in bugs]
    return {
        "reporter": request.pop("reporter"),
        "request": request,
        "rehearsal": [*of_files.values(), *tests[:NUM_REHEARSED]] if is_rehearsed else [],
        "bugs": [
            {
                "id": number,
                "files": {path: content.decode("latin-1") for path, content in bug.files.items()},
                "ids": list(bug.tests),
                "cpu_s": limit_s,
                "wall_s": IDLE_SHARE * limit_s,
            }
            for number, (bug, limit_s) in enumerate(zip(bugs, limits, strict=True))
        ],
    }


def to_confirmed(row: Mapping[str, Any], bug: Bug) -> Confirmed:
    """The result in a row. Anything unexpected in the row is reported as a problem, never raised."""
    report, cpu_s = str(row.get("report", "")), row.get("cpu_s")
    cpu_s = float(cpu_s) if isinstance(cpu_s, int | float) else 0.0
    run = read_run(Execution(stdout=report.encode("utf-8", "replace"), stderr=b"", exit_code=0, cpu_s=cpu_s))
    return judge_run(run, bug.tests)


def judge_run(run: TestRun, tests: Sequence[str]) -> Confirmed:
    """The outcomes of tests that pass without a bug."""
    missing = Outcome(status="error")
    outcomes = {test: run.outcomes.get(test, missing) for test in tests}
    return Confirmed(
        failing={test: outcome for test, outcome in outcomes.items() if outcome.status != "passed"},
        passing=tuple(test for test, outcome in outcomes.items() if outcome.status == "passed"),
        problem=run.problem or ("nothing was collected" if not run.outcomes and not run.not_collected else ""),
        is_late=run.is_late,
        cpu_s=run.execution.cpu_s if run.execution else 0.0,
    )


def list_tests(confirmed: Confirmed, selection: Selection, chance: random.Random) -> Lists:
    """FAIL_TO_PASS and PASS_TO_PASS: failing tests, and passing tests that enter the edited code or are neighbours.
    Where many fail or enter, a random choice."""
    passing = set(confirmed.passing)
    near = choose([test for test in selection.entering if test in passing], MAX_NEAR, chance)
    far = [test for test in selection.neighbours if test in passing]
    return Lists(
        fail_to_pass=choose(list(confirmed.failing), MAX_FAILING, chance),
        pass_to_pass=(*near, *far[:NUM_NEIGHBOURS]),
    )
