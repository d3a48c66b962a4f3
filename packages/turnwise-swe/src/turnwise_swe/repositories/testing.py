"""Run tests of a repository in the sandbox. Outcomes are objects from a reporter, never parsed from printed text."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.core.errors import SandboxError
from turnwise.core.guests import guest_source
from turnwise_sandbox import errors as sandbox_errors
from turnwise_sandbox.trees import Layer, Tree
from turnwise_sandbox.types import Execution, Limits, Network, Program, Sandbox
from turnwise_swe.repositories.outcome import Outcome, Status, read_outcome
from turnwise_swe.repositories.repository import Repository

PACKAGE = "turnwise_swe.repositories"
"""The package whose `guest/` holds the programs that run tests and apply patches."""
DEADLINE_SHARE = 0.9
"""Fraction of the wall limit after which the tests' process is ended, so that its reports still come back."""
MAX_TEST_S = 10.0
"""Processor seconds after which one test is interrupted; its limit in real time is six times as long."""
LIMITS = Limits(
    wall_s=1800.0, cpu_s=300, memory_bytes=2 << 30, output_bytes=64 << 20, num_pids=128, disk_bytes=256 << 20
)
"""Limits for a run of a whole suite. The deadline counts processor time and is six times as long in real time, so that
other work on the machine makes no suite late. The output is the reporter's lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """How to run the tests of a tree."""

    site_packages: Path
    """The folder with what the package and its tests import."""
    import_folders: tuple[str, ...]
    """Folders to import from, relative to the tree."""
    plugins: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Test files that are not collected, and ids of tests that are not run; `file::test` covers all of its
    parameters."""
    network: Network = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """The outcomes of one test run."""

    __test__ = False  # because of its name, pytest would collect it as a test class

    outcomes: Mapping[str, Outcome]
    """Test id to outcome of each test that ended, in the order in which they ran."""
    collected: tuple[str, ...] = ()
    """Ids of the tests that should have run, in that order."""
    not_collected: Mapping[str, Outcome] = field(default_factory=dict)
    """Path of each file that could not be imported or that skips itself, to the reason."""
    problem: str | None = None
    """Why some tests have no result; None if the run completed."""
    is_tampered: bool = False
    """Whether the tested code forged a report or replaced functions of pytest; then nothing in the run counts."""
    is_late: bool = False
    """Whether the run was ended at its deadline."""
    running: str | None = None
    """The test that had started but not finished; None if there is none."""
    unseeded: frozenset[str] = frozenset()
    """Ids of property tests that draw other examples in each run."""
    entered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Test id to the functions of the tree that it called ("path::qualified name"), if the run observed."""
    wrote: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Test id to the files of the tree that it changed, if the run observed."""
    took_word: frozenset[str] = frozenset()
    """Ids of tests, run apart from the package, that asked the package to compare its own objects with each other."""
    output: str = ""
    """The end of pytest's printed output, for people. It is never parsed."""
    execution: Execution | None = None

    @property
    def statuses(self) -> dict[str, Status]:
        """Test id to status."""
        return {test: outcome.status for test, outcome in self.outcomes.items()}


def suite_of(repository: Repository) -> Suite:
    """How the repository's tests are run; files that its baseline leaves out are not collected."""
    return Suite(
        site_packages=repository.site_packages,
        import_folders=repository.import_folders,
        plugins=repository.plugins,
        options=repository.options,
        left_out=tuple(path for path in repository.baseline.left_out if "::" not in path),
        network=repository.network,
    )


async def run_tests(
    sandbox: Sandbox,
    layers: Sequence[Layer],
    suite: Suite,
    *,
    ids: Collection[str] | None = None,
    hash_seed: int = 0,
    is_reversed: bool = False,
    observes: bool = False,
    test_limit_s: float = MAX_TEST_S,
    limits: Limits = LIMITS,
) -> TestRun:
    """Run tests in the tree made of the layers, the first layer lowest.

    Args:
        ids: The tests to run; None means all that pytest collects. Only their files are collected. A file, a class, or
            a test without its parameters selects all of its tests.
        hash_seed: PYTHONHASHSEED of the tests' process.
        is_reversed: Whether the tests run in reversed order.
        observes: Whether to note the functions that each test calls and the files of the tree that it changes, which
            takes up to twice the time.
        test_limit_s: Processor seconds after which a test is interrupted, which makes it fail; of real time, six times
            as many, so that other work of the machine fails no test.
        limits: Limits of the whole run.

    Raises SandboxError if the sandbox itself fails. Anything that the tests do is part of the result.
    """
    request = build_request(
        suite, ids=ids, hash_seed=hash_seed, is_reversed=is_reversed, observes=observes, test_limit_s=test_limit_s
    )
    request["deadline_s"] = limits.wall_s * DEADLINE_SHARE
    program = Program(
        code=guest_source(PACKAGE, "launcher.py"),
        stdin=json.dumps(request).encode("ascii"),
        profile="std",
        network=suite.network,
        tree=Tree(layers=tuple(layers), visible=(suite.site_packages,)),
    )
    try:
        execution = await sandbox.run(program, limits)
    except sandbox_errors.SandboxError as cause:
        raise SandboxError(str(cause)) from cause
    return read_run(execution)


async def run_repository(
    sandbox: Sandbox,
    repository: Repository,
    layers: Iterable[Layer] = (),
    *,
    ids: Collection[str] | None = None,
    test_limit_s: float = MAX_TEST_S,
    limits: Limits = LIMITS,
) -> TestRun:
    """Run tests of a repository with further layers over its tree, like `run_tests`."""
    return await run_tests(
        sandbox, (repository.root, *layers), suite_of(repository), ids=ids, test_limit_s=test_limit_s, limits=limits
    )


def build_request(
    suite: Suite,
    *,
    ids: Collection[str] | None,
    hash_seed: int,
    is_reversed: bool,
    observes: bool,
    test_limit_s: float,
) -> dict[str, Any]:
    """The request for the launcher and the reporter, without the deadline. Folders of the tree are relative to it."""
    return {
        "reporter": guest_source(PACKAGE, "reporter.py"),
        "channel": None,
        "import_folders": list(suite.import_folders),
        "site_packages": str(suite.site_packages),
        "hash_seed": str(hash_seed),
        "files": [] if ids is None else list(dict.fromkeys(test.split("::")[0] for test in ids)),
        "ids": None if ids is None else list(ids),
        "left_out": list(suite.left_out),
        "options": list(suite.options),
        "plugins": list(suite.plugins),
        "is_reversed": is_reversed,
        "observes": observes,
        "test_limit_s": test_limit_s,
    }


def read_run(execution: Execution) -> TestRun:
    """The run that the launcher printed. Malformed output is reported as the run's problem, never raised."""
    rows: list[dict[str, Any]] = []
    for line in execution.stdout.split(b"\n"):
        try:
            rows += [json.loads(line)] if line else []
        except ValueError:
            break  # a line cut by the end of the launcher; nothing follows it
    try:
        return _to_run(rows, execution)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        what = f"a report cannot be read: {type(problem).__name__}: {problem}"
        return TestRun(outcomes={}, problem=what, is_tampered=True, execution=execution)


def _to_run(rows: list[dict[str, Any]], execution: Execution) -> TestRun:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    tests, collected = by_kind.get("test", []), (by_kind.get("collected") or [{}])[-1]
    ended = {row["id"] for row in tests}
    began = [row["id"] for row in by_kind.get("start", []) if row["id"] not in ended]
    exits = by_kind.get("exit", [])
    last = exits[-1] if exits else {}
    tampered = by_kind.get("tampered", [])
    return TestRun(
        outcomes={row["id"]: read_outcome(row) for row in tests},
        collected=tuple(collected.get("ids", ())),
        not_collected={row["path"]: _why_not_collected(row) for row in by_kind.get("not collected", [])},
        problem=tampered[0]["what"] if tampered else _find_problem(bool(by_kind.get("end")), last, execution),
        is_tampered=bool(tampered),
        is_late=bool(last.get("is_late")) or execution.limit == "wall",
        running=began[-1] if began and not by_kind.get("end") else None,
        unseeded=frozenset(collected.get("unseeded", ())),
        entered={row["id"]: frozenset(row["entered"]) for row in tests if row.get("entered")},
        wrote={row["id"]: tuple(row["wrote"]) for row in tests if row.get("wrote")},
        took_word=frozenset(row["id"] for row in by_kind.get("word", [])),
        output=str(last.get("output", "")),
        execution=execution,
    )


def _why_not_collected(row: Mapping[str, Any]) -> Outcome:
    status: Status = "skipped" if row["status"] == "skipped" else "error"
    return Outcome(status=status, message=str(row["message"]), details=str(row["details"]))


def _find_problem(has_ended: bool, last: Mapping[str, Any], execution: Execution) -> str | None:
    """Why the run did not complete; None if it did."""
    if last.get("is_late") or execution.limit == "wall":
        return "the run took longer than its deadline"
    if execution.limit is not None:
        return f"the run hit its {execution.limit} limit"
    if not last:
        return f"the run ended with status {execution.exit_code}, signal {execution.signal}, without a report"
    if not has_ended:
        return f"the tests' process ended with status {last['code']} before its report did"
    return None
