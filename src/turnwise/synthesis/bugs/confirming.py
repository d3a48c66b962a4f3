"""Confirm a bug: run the selected tests on the really edited tree, in a fresh process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnwise.repositories.grading import limit_run
from turnwise.repositories.outcome import Outcome
from turnwise.repositories.repository import Repository
from turnwise.repositories.testing import run_repository
from turnwise_sandbox.types import Sandbox

MAX_NEAR, MAX_FAR = 20, 10
"""Tests of PASS_TO_PASS that enter the edited code, and that do not: enough to notice a careless repair, and few enough
for a short line and a short grading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What became of the selected tests with the bug in place."""

    failing: Mapping[str, Outcome]
    """Tests that pass without the bug and do not pass with it. A test that did not run has an empty error."""
    passing: tuple[str, ...]
    problem: str = ""
    """Why nothing of this counts; "" if it does."""
    is_late: bool = False
    """Whether the run was stopped at its deadline."""
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """The two lists of an instance."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]


async def confirm(
    sandbox: Sandbox, repository: Repository, bug: Mapping[str, bytes | None], tests: Sequence[str]
) -> Confirmed:
    """Run tests that pass without a bug on the tree with it. Raises SandboxError if the sandbox fails."""
    run = await run_repository(sandbox, repository, (bug,), ids=tests, limits=limit_run(repository, tests))
    missing = Outcome(status="error")
    outcomes = {test: run.outcomes.get(test, missing) for test in tests}
    return Confirmed(
        failing={test: outcome for test, outcome in outcomes.items() if outcome.status != "passed"},
        passing=tuple(test for test, outcome in outcomes.items() if outcome.status == "passed"),
        problem=run.problem or ("nothing was collected" if not run.outcomes and not run.not_collected else ""),
        is_late=run.is_late,
        cpu_s=run.execution.cpu_s if run.execution else 0.0,
    )


def list_tests(confirmed: Confirmed, entering: Sequence[str], neighbours: Sequence[str]) -> Lists:
    """FAIL_TO_PASS and PASS_TO_PASS: every failing test, and a share of those that pass near the bug and beside it."""
    passing = set(confirmed.passing)
    near = [test for test in entering if test in passing][:MAX_NEAR]
    far = [test for test in neighbours if test in passing][:MAX_FAR]
    return Lists(fail_to_pass=tuple(confirmed.failing), pass_to_pass=(*near, *far))
