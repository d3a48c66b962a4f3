"""Render an instance as a page of Markdown: the bug, the issue, the failing tests, and the grades of patches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from turnwise_sandbox.types import Sandbox
from turnwise_swe.repositories.grading import Grade, check_tests, grade_changes, grade_patch
from turnwise_swe.repositories.instance import Instance
from turnwise_swe.repositories.repository import Repository
from turnwise_swe.repositories.source_lines import split_source
from turnwise_swe.repositories.testing import TestRun, run_repository

MAX_LINES = 30
"""Lines of the failing test's traceback; the middle of a longer one is left out."""
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_ELSEWHERE = re.compile(r"^/\S*/(?=[^/\s]+:\d+: )", re.MULTILINE)
"""The folder of a frame outside the tree, which differs from machine to machine."""


async def show_instance(sandbox: Sandbox, repository: Repository, instance: Instance, prediction: str | None) -> str:
    """The page. The tree with the bug, the gold patch and `prediction`, if there is one, are graded for it.

    Raises DataError if the instance does not fit the repository, SandboxError if the sandbox fails."""
    bug = instance.bug_layer(repository)
    check_tests(repository, instance)
    run = await run_repository(sandbox, repository, [bug], ids=instance.fail_to_pass)
    grades = {
        "none": await grade_changes(sandbox, repository, instance, {}),
        "gold": await grade_patch(sandbox, repository, instance, instance.gold),
    }
    if prediction is not None:
        grades["the prediction"] = await grade_patch(sandbox, repository, instance, prediction)
    return "\n".join(_lines(instance, run, grades, prediction))


def _lines(instance: Instance, run: TestRun, grades: Mapping[str, Grade], prediction: str | None) -> Iterator[str]:
    yield f"## {instance.instance_id}"
    yield ""
    yield f"{instance.repository}, {' and '.join(instance.kind)}, {instance.difficulty}. The bug:"
    yield ""
    yield from _fenced("diff", instance.patch)
    yield ""
    yield "What the agent is told:"
    yield ""
    yield from (f"> {line}".rstrip() for line in split_source(instance.issue.strip()))
    yield ""
    yield from _failure(instance, run)
    yield ""
    yield "| patch | ending | FAIL_TO_PASS good | PASS_TO_PASS good | graded |"
    yield "|---|---|---|---|---|"
    yield from (_row(patch, grade, instance) for patch, grade in grades.items())
    if prediction is not None:
        yield ""
        yield "The prediction:"
        yield ""
        yield from _fenced("diff", prediction)


def _failure(instance: Instance, run: TestRun) -> Iterator[str]:
    """The first test that the bug breaks, with its traceback."""
    test = instance.fail_to_pass[0]
    others = f", the first of {len(instance.fail_to_pass)}" if len(instance.fail_to_pass) > 1 else ""
    outcome = run.outcomes.get(test)
    status = outcome.status if outcome else "not run"
    yield f"What a tester sees: `{test}`{others}, {status}."
    yield ""
    text = (outcome.details or outcome.message) if outcome else run.problem or ""
    text = _ELSEWHERE.sub(".../", _ADDRESS.sub("0x...", text.strip()))
    yield from _fenced("", "\n".join(_cut(split_source(text))))


def _row(patch: str, grade: Grade, instance: Instance) -> str:
    """One row of the table of grades."""
    place = "in one process, forgeable" if grade.forgeable else "separately from the package"
    counts, reason = ["none ran", "none ran"], f": {grade.reason}" if grade.reason else ""
    if grade.resolution is not None:
        counts = [
            f"{len(grade.resolution.fixed)} of {len(instance.fail_to_pass)}",
            f"{len(grade.resolution.kept)} of {len(instance.pass_to_pass)}",
        ]
    restored = f", without its change of {', '.join(grade.restored)}" if grade.restored else ""
    return f"| {patch} | `{grade.ending}`{reason}{restored} | {' | '.join(counts)} | {place} |"


def _cut(lines: Sequence[str]) -> list[str]:
    """The lines, without the middle if there are too many."""
    half = MAX_LINES // 2
    return [*lines] if len(lines) <= MAX_LINES else [*lines[:half], "[...]", *lines[-half:]]


def _fenced(language: str, text: str) -> Iterator[str]:
    """The text as a fenced block, whose fence is longer than any in the text."""
    longest = max((len(fence) for fence in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield from text.rstrip("\n").split("\n")
    yield fence
