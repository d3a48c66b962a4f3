"""Measure which tests of a repository can run apart from its package (separate.py), safe from forged outcomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnwise_sandbox.grading.channel import PairRunner
from turnwise_sandbox.types import Limits
from turnwise_swe.repositories.repository import Repository
from turnwise_swe.repositories.separate import run_separately
from turnwise_swe.repositories.testing import TestRun

LIMITS = Limits(wall_s=1200.0, memory_bytes=2 << 30, output_bytes=64 << 20, num_pids=128, disk_bytes=256 << 20)
"""Limits for a run of a whole suite, which takes several times as long apart."""
TEST_LIMIT_S = 5.0
"""Processor seconds after which a test is interrupted; no test of a baseline takes longer than 1 s in one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Separability:
    """Outcomes of a suite's passing tests without any bug, run apart from the package."""

    durations: Mapping[str, float] = field(default_factory=dict)
    """Id of each test that passes apart, to its seconds of real time. It must pass in the whole suite and again among
    the other tests that pass, without relying on comparisons made by the package."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Id of each other test, to the reason."""
    cpu_s: float = 0.0
    """Processor seconds of both halves in the first run."""

    def to_row(self) -> dict[str, Any]:
        """The result as JSON."""
        return {"durations": dict(self.durations), "reasons": dict(self.reasons), "cpu_s": self.cpu_s}


def read_separability(row: Mapping[str, Any]) -> Separability:
    """The result in a row of `Separability.to_row`. Raises ValueError, KeyError or TypeError for anything else."""
    durations = {test: float(seconds) for test, seconds in row["durations"].items()}
    return Separability(durations=durations, reasons=dict(row["reasons"]), cpu_s=float(row["cpu_s"]))


async def measure_separability(sandbox: PairRunner, repository: Repository) -> Separability:
    """Run the baseline's passing tests apart from the package, then run those that passed again in reversed order.

    Raises SandboxError if the sandbox fails.
    """
    tests = repository.baseline.passing
    first = await run_separately(sandbox, repository, ids=tests, test_limit_s=TEST_LIMIT_S, limits=LIMITS)
    reasons = find_reasons(tests, first)
    left = [test for test in tests if test not in reasons]
    if left:
        second = await run_separately(
            sandbox, repository, ids=left, is_reversed=True, test_limit_s=TEST_LIMIT_S, limits=LIMITS
        )
        reasons |= find_reasons(left, second)
    return Separability(
        durations={test: first.outcomes[test].duration_s for test in left if test not in reasons},
        reasons=reasons,
        cpu_s=first.execution.cpu_s if first.execution else 0.0,
    )


def find_reasons(tests: tuple[str, ...] | list[str], run: TestRun) -> dict[str, str]:
    """Test id to reason, for each test that did not pass apart, or that relied on a comparison made by the package."""
    reasons: dict[str, str] = {}
    for test in tests:
        outcome, file = run.outcomes.get(test), run.not_collected.get(test.split("::")[0])
        if outcome is None:
            reasons[test] = f"not collected: {file.message}" if file else f"not run: {run.problem or 'no outcome'}"
        elif outcome.status != "passed":
            reasons[test] = outcome.message or outcome.status
        elif test in run.took_word:
            reasons[test] = "compares objects of the package with each other"
    return reasons


def count_kinds(reasons: Mapping[str, str]) -> dict[str, int]:
    """How many tests each kind of reason keeps from running apart, the most frequent first."""
    kinds: dict[str, int] = {}
    for reason in reasons.values():
        kind = next(
            (kind for pattern, kind in _KINDS if re.search(pattern, reason)), "differs from a run in one process"
        )
        kinds[kind] = kinds.get(kind, 0) + 1
    return dict(sorted(kinds.items(), key=lambda item: -item[1]))


_KINDS = (
    (r"^compares objects of the package", "compares objects of the package with each other"),
    (r"No such file|FileExists|PermissionError|NotADirectory", "shares files between test and package"),
    (
        r"not ordered against|not trusted|must not give a bare",
        "queries an object of the package about a value of the test",
    ),
    (r"cannot be passed|cannot be sent|cannot be pickled|nested more than", "passes an object that cannot be sent"),
    (
        r"is not available to the candidate|not available on objects",
        "lets the package reach into an object of the test",
    ),
    (r"^the worker|tests' process ended", "loses its worker"),
    (r"^not collected", "its file cannot be collected"),
    (r"^not run", "not run"),
    (
        r"^(AttributeError|TypeError|ValueError|NameError|ImportError|RecursionError)",
        "raises an error that it does not raise in one process",
    ),
)
