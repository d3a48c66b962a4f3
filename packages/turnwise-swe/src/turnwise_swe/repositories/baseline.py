"""Measure a suite before any bug is planted: which tests are stable, what each calls, and why the rest is left out.

Four runs in the sandbox: one in pytest's order, one in reversed order with another hash seed, one that observes, and
one more like the first, some time later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from turnwise.core.errors import DataError
from turnwise_sandbox.types import Sandbox
from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.repository import Baseline
from turnwise_swe.repositories.testing import Suite, TestRun, run_tests

HASH_SEEDS = (0, 1_203_945)
"""PYTHONHASHSEED of the first and of the second run."""
MAX_DURATION_S = 1.0
"""Tests that take longer than this, even in the faster of two runs, are left out."""
MAX_HANGS = 5
"""Number of tests that may hang and be left out before the suite is given up."""


async def measure_baseline(
    sandbox: Sandbox,
    root: Path,
    suite: Suite,
    *,
    name: str,
    source_folders: Sequence[str],
    left_out: Mapping[str, str],
) -> Baseline:
    """Measure the suite of the tree `root`.

    `left_out` maps excluded test files, folders and tests to the reason. `name` names the repository in errors.

    Raises DataError if no test passes, or if the suite does not complete even without the tests that hang; SandboxError
    if the sandbox fails.
    """
    reasons = dict(left_out)
    suite = dataclasses.replace(suite, left_out=tuple(left_out))
    first, suite = await _run_without_hangs(sandbox, root, suite, reasons, name=name)
    second = await run_tests(sandbox, (root,), suite, hash_seed=HASH_SEEDS[1], is_reversed=True)
    third = await run_tests(sandbox, (root,), suite, hash_seed=HASH_SEEDS[0], observes=True)
    fourth = await run_tests(sandbox, (root,), suite, hash_seed=HASH_SEEDS[0])
    for run in (first, second, third, fourth):
        _check_run(run, name)
    reasons |= {path: _why_no_file(outcome) for path, outcome in first.not_collected.items()}
    reasons |= find_changed(first, fourth) | compare_runs(first, second)
    reasons |= {test: f"writes {paths[0]} in its tree" for test, paths in third.wrote.items()}
    stable = {test: outcome for test, outcome in first.outcomes.items() if test not in reasons}
    if not any(outcome.status == "passed" for outcome in stable.values()):
        raise DataError(f"{name}: {_why_nothing_passes(first, reasons)}")
    return Baseline(
        outcomes={test: dataclasses.replace(outcome, details="") for test, outcome in stable.items()},
        left_out=reasons,
        durations={test: min(outcome.duration_s, second.outcomes[test].duration_s) for test, outcome in stable.items()},
        entered={
            test: functions
            for test in stable
            if (functions := frozenset(_in_sources(third.entered.get(test, ()), source_folders)))
        },
        cpu_s=first.execution.cpu_s if first.execution else 0.0,
    )


async def _run_without_hangs(
    sandbox: Sandbox, root: Path, suite: Suite, reasons: dict[str, str], *, name: str
) -> tuple[TestRun, Suite]:
    """The first run, and the suite without the tests that did not finish; those are added to `reasons`."""
    for _ in range(MAX_HANGS + 1):
        run = await run_tests(sandbox, (root,), suite, hash_seed=HASH_SEEDS[0])
        if not run.is_late or run.running is None:
            return run, suite
        reasons[run.running] = "does not end, and cannot be interrupted"
        suite = dataclasses.replace(suite, left_out=(*suite.left_out, run.running))
    raise DataError(f"{name}: more than {MAX_HANGS} tests hang, most recently {run.running}; leave them out")


def _check_run(run: TestRun, name: str) -> None:
    if run.problem is not None:
        lines = run.output.strip().splitlines() or ["pytest printed nothing"]
        raise DataError(f"{name}: its suite cannot be measured, because {run.problem}: {lines[-1][:300]}")


def find_changed(first: TestRun, later: TestRun) -> dict[str, str]:
    """Test id to reason, for each test whose status changed when the same run was repeated some time later."""
    return {
        test: f"{one.status} in one run and {other.status} in the same run some time later"
        for test, one in first.outcomes.items()
        if (other := later.outcomes.get(test)) is not None and other.status != one.status
    }


def compare_runs(first: TestRun, second: TestRun) -> dict[str, str]:
    """Test id to reason, for each test that cannot judge a patch: it differs between the runs, fails before any bug,
    takes too long, or draws other examples each time."""
    reasons: dict[str, str] = {}
    for test in dict.fromkeys((*first.outcomes, *second.outcomes)):
        one, other = first.outcomes.get(test), second.outcomes.get(test)
        if one is None or other is None:
            reasons[test] = "its id is not the same in every run"
        elif one.status != other.status:
            reasons[test] = f"{one.status} in one run and {other.status} in reversed order with another hash seed"
        elif one.status in ("failed", "error"):
            reasons[test] = f"{one.status} before any bug: {one.message}"
        elif test in first.unseeded:
            reasons[test] = "property test without a fixed seed"
        elif (seconds := min(one.duration_s, other.duration_s)) > MAX_DURATION_S:
            reasons[test] = f"takes {seconds:.1f} s, longer than {MAX_DURATION_S:g} s"
    return reasons


def _why_no_file(outcome: Outcome) -> str:
    return f"{'skips itself' if outcome.status == 'skipped' else 'cannot be collected'}: {outcome.message}"


def _why_nothing_passes(run: TestRun, reasons: Mapping[str, str]) -> str:
    if not run.outcomes and not run.not_collected:
        return "pytest finds no test in it"
    test, reason = next(((key, text) for key, text in reasons.items() if key in run.outcomes), ("", ""))
    if not test:
        test, reason = next(iter(reasons.items()), ("its tests", "are skipped"))
    return f"none of its {len(run.outcomes)} tests can judge a patch; {test}: {reason}"


def _in_sources(functions: Iterable[str], source_folders: Sequence[str]) -> Iterable[str]:
    """The functions ("path::name") of files of the package, without its tests."""
    starts = tuple(f"{folder}::" if folder.endswith(".py") else f"{folder}/" for folder in source_folders)
    return (function for function in functions if function.startswith(starts))


def count_reasons(left_out: Mapping[str, str]) -> dict[str, int]:
    """How many tests and files each kind of reason excludes, the most frequent first."""
    kinds: dict[str, int] = {}
    for reason in left_out.values():
        kind = next((kind for start, kind in _KINDS if reason.startswith(start)), reason.split(":")[0])
        kinds[kind] = kinds.get(kind, 0) + 1
    return dict(sorted(kinds.items(), key=lambda item: -item[1]))


_KINDS = (
    ("its id", "unstable id"),
    ("takes ", "slow"),
    ("writes ", "writes its tree"),
    ("property test", "unseeded"),
    ("does not end", "hangs"),
    ("failed before", "fails before any bug"),
    ("error before", "fails before any bug"),
    ("passed in", "unstable outcome"),
    ("failed in", "unstable outcome"),
    ("error in", "unstable outcome"),
    ("skipped in", "unstable outcome"),
    ("cannot be", "not collected"),
    ("skips itself", "skips itself"),
)
