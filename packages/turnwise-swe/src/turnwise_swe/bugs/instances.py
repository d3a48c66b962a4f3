"""Build the instance of a confirmed bug: patch, lists of tests, issue text, difficulty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from turnwise_swe.bugs.difficulty import measure_difficulty
from turnwise_swe.bugs.edits.source import Scope, first_line
from turnwise_swe.bugs.edits.table import KINDS
from turnwise_swe.bugs.issues import write_issue
from turnwise_swe.repositories.diffs import make_diff
from turnwise_swe.repositories.instance import Instance
from turnwise_swe.repositories.outcome import Outcome
from turnwise_swe.repositories.repository import Repository


def build_instance(
    repository: Repository,
    *,
    instance_id: str,
    before: Mapping[str, bytes | None],
    after: Mapping[str, bytes | None],
    kinds: Sequence[str],
    places: Sequence[str],
    num_lines: int,
    failing: Mapping[str, Outcome],
    pass_to_pass: Sequence[str],
    seed: int,
) -> Instance:
    """The instance whose bug turns the files `before` into `after`.

    Args:
        kinds: Names of kinds; those in `KINDS` explain the bug in the issue.
        places: The edited functions, as "path::qualified name".
        num_lines: Number of lines of all edited functions together.
        failing: Outcomes of the tests that the bug breaks, at least one.
        seed: Chooses the issue's template.
    """
    patch = make_diff(before, after)
    issue = write_issue(
        package=repository.name,
        version=repository.version,
        failing=failing,
        test_texts=read_tests(repository, failing),
        places=places,
        explanations=[KINDS[kind].explanation for kind in kinds if kind in KINDS],
        patch=patch,
        seed=seed,
    )
    return Instance(
        instance_id=instance_id,
        repository=repository.key,
        patch=patch,
        fail_to_pass=tuple(failing),
        pass_to_pass=tuple(pass_to_pass),
        kind=tuple(kinds),
        issue=issue,
        difficulty=measure_difficulty(list(failing), repository.baseline.entered, num_lines),
    )


def read_tests(repository: Repository, tests: Iterable[str]) -> dict[str, str]:
    """Path to source text of each file that contains one of the tests."""
    files = {path: repository.root / path for path in {test.split("::")[0] for test in tests}}
    return {path: file.read_text("utf-8", errors="replace") for path, file in files.items() if file.is_file()}


def count_lines(node: Scope) -> int:
    """Number of lines of a function or class with its decorators."""
    return (node.end_lineno or node.lineno) - first_line(node) + 1
