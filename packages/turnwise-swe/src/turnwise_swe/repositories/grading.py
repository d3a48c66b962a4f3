"""Grade a patch: lay its source files over the tree with the bug, run the instance's tests, and judge their outcomes.

What a patch changes besides source files of the package (tests, conftest.py, settings of pytest, files that Python
loads by itself) is restored before anything runs, so that a patch decides neither which tests run nor how.

Tests that can be run apart from the package (separability.py) are run apart if that is possible for all FAIL_TO_PASS
tests and one PASS_TO_PASS test: then no patch can write the grade. The other PASS_TO_PASS tests run in the process of
the patch, which could hide what it breaks but not claim a fix that it lacks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from turnwise.core.errors import DataError, SandboxError
from turnwise_sandbox.grading.channel import find_pair_runner
from turnwise_sandbox.trees import Layer
from turnwise_sandbox.types import Limits, Sandbox
from turnwise_swe.repositories.instance import Instance
from turnwise_swe.repositories.outcome import Status
from turnwise_swe.repositories.patching import Patched, apply_patch
from turnwise_swe.repositories.repository import Repository
from turnwise_swe.repositories.resolution import Resolution, resolve
from turnwise_swe.repositories.separate import run_separately
from turnwise_swe.repositories.testing import LIMITS, TestRun, run_repository

Ending = Literal[
    "resolved",
    "unresolved",
    "no_patch",
    "patch_refused",
    "patch_failed",
    "timeout",
    "crashed",
    "tampered",
    "no_evidence",
    "infrastructure",
]
"""How grading ended. Every ending but "infrastructure" is a verdict on the patch:

- no_patch: the prediction is empty
- patch_refused: it is not text, makes links, or names paths outside the tree
- patch_failed: it does not apply to the tree
- timeout: its tests run longer than their deadline
- crashed: the tests' process ended before its report did
- tampered: it forged a report or replaced functions of pytest
- no_evidence: no test ran, although the tests run without any bug
- infrastructure: the sandbox failed, or no test runs even without any bug
"""
MIN_WALL_S = 60.0
"""Minimum wall-clock limit of a run, in seconds."""
FILE_S = 10.0
"""Seconds of real time that the processes of one test file may take to start."""
SLOWDOWN = 20.0
"""An instance's tests may take this many times as long as without a bug, beyond the minimum limit."""


Runner = Callable[[Sandbox, Repository, Iterable[Layer], tuple[str, ...]], Awaitable[TestRun]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The grade of one patch."""

    instance_id: str
    ending: Ending
    reason: str = ""
    """The reason in one line; "" if the lists of tests show it."""
    resolution: Resolution | None = None
    """Outcomes of the tests; None if none ran."""
    way: str | None = None
    """The command that applied the patch."""
    restored: tuple[str, ...] = ()
    """Protected files that the patch changed; their pristine version was used."""
    forgeable: bool = True
    """Whether the patch ran in the process of the FAIL_TO_PASS tests, so that it could write this grade."""
    cpu_s: float = 0.0
    """Processor seconds of all test runs."""
    wall_s: float = 0.0
    """Wall-clock seconds of the whole grading."""

    @property
    def score(self) -> float | None:
        """1 if resolved, else 0; None if the infrastructure failed."""
        return None if self.ending == "infrastructure" else float(self.ending == "resolved")

    def to_row(self) -> dict[str, Any]:
        """The grade as JSON, with SWE-bench's names where it has them."""
        row: dict[str, Any] = {
            "instance_id": self.instance_id,
            "resolved": self.ending == "resolved",
            "ending": self.ending,
            "reason": self.reason,
            "forgeable": self.forgeable,
            "applied_by": self.way,
            "restored": list(self.restored),
            "cpu_s": round(self.cpu_s, 3),
            "wall_s": round(self.wall_s, 3),
        }
        if self.resolution is not None:
            row["verdict"] = self.resolution.verdict
            row["tests_status"] = {
                "FAIL_TO_PASS": {"success": self.resolution.fixed, "failure": self.resolution.not_fixed},
                "PASS_TO_PASS": {"success": self.resolution.kept, "failure": self.resolution.broken},
            }
        return row


async def grade_patch(sandbox: Sandbox, repository: Repository, instance: Instance, patch: str) -> Grade:
    """Grade a unified diff against the tree with the instance's bug.

    Raises DataError if the instance does not fit the repository, ConfigError if neither git nor patch is installed.
    """
    began = time.monotonic()
    bug = instance.bug_layer(repository)
    check_tests(repository, instance)
    if not patch.strip():
        return Grade(instance_id=instance.instance_id, ending="no_patch", reason="the patch is empty")
    try:
        patched = await apply_patch(sandbox, (repository.root, bug), patch)
        if patched.way is None:
            ending: Ending = "patch_refused" if patched.is_refused else "patch_failed"
            wall_s = time.monotonic() - began
            return Grade(instance_id=instance.instance_id, ending=ending, reason=patched.reason, wall_s=wall_s)
        return await _grade_changes(sandbox, repository, instance, bug, patched, began)
    except SandboxError as failure:
        return _blame_sandbox(instance, failure, began)


async def grade_changes(
    sandbox: Sandbox, repository: Repository, instance: Instance, changes: Mapping[str, bytes | None]
) -> Grade:
    """Grade changed files, as left by an agent's session, instead of a diff. Raises as `grade_patch`."""
    began = time.monotonic()
    bug = instance.bug_layer(repository)
    check_tests(repository, instance)
    try:
        patched = Patched(changes=changes, way="files")
        return await _grade_changes(sandbox, repository, instance, bug, patched, began)
    except SandboxError as failure:
        return _blame_sandbox(instance, failure, began)


def _blame_sandbox(instance: Instance, failure: SandboxError, began: float) -> Grade:
    wall_s = time.monotonic() - began
    return Grade(instance_id=instance.instance_id, ending="infrastructure", reason=str(failure), wall_s=wall_s)


async def _grade_changes(
    sandbox: Sandbox, repository: Repository, instance: Instance, bug: Layer, patched: Patched, began: float
) -> Grade:
    restored = tuple(sorted(path for path in patched.changes if repository.is_protected(path)))
    kept = {path: content for path, content in patched.changes.items() if path not in restored}
    ids = (*instance.fail_to_pass, *instance.pass_to_pass)
    apart = choose_apart(repository, instance) if find_pair_runner(sandbox) else ()
    together = tuple(test for test in ids if test not in set(apart))
    parts = [(apart, run_apart), (together, run_together)]
    runs = [await _run_part(run, sandbox, repository, (bug, kept), tests) for tests, run in parts if tests]
    ending: Ending = "unresolved"
    ending, reason = next(((end, why) for _, end, why in runs if end != "unresolved"), (ending, ""))
    statuses = {test: status for run, _, _ in runs for test, status in count_words(run).items()}
    resolution = None
    if statuses and ending != "tampered":
        before = {test: outcome.status for test, outcome in repository.baseline.outcomes.items()}
        resolution = resolve(statuses, instance.fail_to_pass, instance.pass_to_pass, before=before)
        if ending == "unresolved" and resolution.is_resolved:
            ending = "resolved"
    return Grade(
        instance_id=instance.instance_id,
        ending=ending,
        reason=reason,
        resolution=resolution,
        way=patched.way,
        restored=restored,
        forgeable=not apart,
        cpu_s=sum(run.execution.cpu_s for run, _, _ in runs if run.execution),
        wall_s=time.monotonic() - began,
    )


def choose_apart(repository: Repository, instance: Instance) -> tuple[str, ...]:
    """The instance's tests that are run apart from the package; none unless all FAIL_TO_PASS tests and one PASS_TO_PASS
    test can be."""
    kept = tuple(test for test in instance.pass_to_pass if test in repository.apart)
    is_whole = all(test in repository.apart for test in instance.fail_to_pass)
    return (*instance.fail_to_pass, *kept) if is_whole and kept else ()


async def run_apart(sandbox: Sandbox, repository: Repository, layers: Iterable[Layer], ids: tuple[str, ...]) -> TestRun:
    """Run tests apart from the package."""
    pairs = find_pair_runner(sandbox)
    assert pairs is not None
    files = {test.split("::")[0] for test in ids}
    seconds = MIN_WALL_S + FILE_S * len(files) + SLOWDOWN * sum(repository.apart[test] for test in ids)
    return await run_separately(pairs, repository, layers, ids=ids, limits=replace(LIMITS, wall_s=seconds))


def count_words(run: TestRun) -> dict[str, Status]:
    """The statuses of a run. A test that relied on a comparison made by the package fails: without any bug it did not
    rely on one, so the patch returns its own objects where there were values."""
    return {test: "failed" if test in run.took_word else status for test, status in run.statuses.items()}


async def run_together(
    sandbox: Sandbox, repository: Repository, layers: Iterable[Layer], ids: tuple[str, ...]
) -> TestRun:
    """Run tests in the process of the package."""
    return await run_repository(sandbox, repository, layers, ids=ids, limits=limit_run(repository, ids))


async def _run_part(
    run: Runner, sandbox: Sandbox, repository: Repository, layers: Iterable[Layer], ids: tuple[str, ...]
) -> tuple[TestRun, Ending, str]:
    """A run with its ending and the reason. Blames the infrastructure if no test runs with the patch, nor without
    any bug."""
    tried = await run(sandbox, repository, layers, ids)
    ending, reason = _find_ending(tried)
    if ending in ("crashed", "no_evidence") and not tried.outcomes:
        pristine = await run(sandbox, repository, (), ids)
        if not pristine.outcomes:
            ending, reason = "infrastructure", f"no test runs without any bug either: {pristine.problem or reason}"
    return tried, ending, reason


def _find_ending(run: TestRun) -> tuple[Ending, str]:
    """How the run ended, and why; "unresolved" if its outcomes are still to be judged."""
    if run.is_tampered:
        return "tampered", run.problem or ""
    if run.is_late:
        return "timeout", f"{run.problem}; {run.running or 'no test'} was running"
    if run.problem is not None:
        return "crashed", run.problem
    if not run.outcomes:
        path, outcome = next(iter(run.not_collected.items()), ("", None))
        return "no_evidence", f"{path}: {outcome.message}" if outcome else "no test was collected"
    return "unresolved", ""


def limit_run(repository: Repository, ids: Iterable[str]) -> Limits:
    """The limits of a run of these tests: generous, because a deadline counts against the patch."""
    seconds = sum(repository.baseline.durations.get(test, 0.0) for test in ids)
    return replace(LIMITS, wall_s=MIN_WALL_S + SLOWDOWN * seconds)


def check_tests(repository: Repository, instance: Instance) -> None:
    """Raise DataError if the instance names a test that the repository's baseline does not have."""
    for test in (*instance.fail_to_pass, *instance.pass_to_pass):
        if test not in repository.baseline.outcomes:
            reason = repository.baseline.left_out.get(test, "it has no such test")
            raise DataError(
                f"instance {instance.instance_id!r} names {test}, which {repository.key} leaves out: {reason}"
            )


async def grade_all(
    sandbox: Sandbox,
    repositories: Mapping[str, Repository],
    instances: Sequence[Instance],
    patches: Mapping[str, str | None],
) -> list[Grade]:
    """Grade the patch of each instance, in order. An instance without a patch counts as an empty one, which is not run;
    None runs the tests on the unrepaired bug, a control that must not resolve.

    `repositories` maps `name==version`. As many run at a time as the sandbox has slots. Raises as `grade_patch`.
    """
    for instance in instances:
        instance.bug_layer(repositories[instance.repository])
        check_tests(repositories[instance.repository], instance)

    def start(instance: Instance) -> Coroutine[Any, Any, Grade]:
        repository, patch = repositories[instance.repository], patches.get(instance.instance_id, "")
        if patch is None:
            return grade_changes(sandbox, repository, instance, {})
        return grade_patch(sandbox, repository, instance, patch)

    return await asyncio.gather(*map(start, instances))
