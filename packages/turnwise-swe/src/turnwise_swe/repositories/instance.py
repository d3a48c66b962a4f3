"""An instance: one bug in a repository, the tests that it breaks, and the tests that must keep passing.

A file of instances is JSONL in SWE-bench's own field names, so that its tools read it; `difficulty` and `kind` are
added. A row's `patch` is the gold patch, as in SWE-bench; an instance's `patch` is the bug, which is the same diff
reversed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise_swe.repositories.diffs import apply_exactly, parse_diff, reverse_diff
from turnwise_swe.repositories.repository import Repository, check_key

FIELDS = ("instance_id", "repo", "version", "patch", "problem_statement", "FAIL_TO_PASS", "PASS_TO_PASS")
"""Fields that every row must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One bug in a repository. Raises DataError if no test fails because of it, or if it is not a diff."""

    instance_id: str
    repository: str
    """`name==version`."""
    patch: str
    """The unified diff that plants the bug in the pristine tree."""
    fail_to_pass: tuple[str, ...]
    """Ids of the tests that the bug breaks; never empty, because then every patch would pass."""
    pass_to_pass: tuple[str, ...]
    """Ids of the tests that pass with and without the bug."""
    kind: tuple[str, ...] = ()
    """How the bug was made: names of modifiers."""
    issue: str = ""
    """The issue text that the agent is given."""
    difficulty: str = ""
    """"" if unknown."""

    def __post_init__(self) -> None:
        name = f"instance {self.instance_id!r}"
        if not self.fail_to_pass:
            raise DataError(f"{name} has no FAIL_TO_PASS test, so every patch would resolve it; leave it out")
        if both := set(self.fail_to_pass) & set(self.pass_to_pass):
            raise DataError(
                f"{name} has {min(both)!r} both in FAIL_TO_PASS and in PASS_TO_PASS; keep it in one of them"
            )
        try:
            files = parse_diff(self.patch)
        except DataError as cause:
            raise DataError(f"{name}: {cause}") from None
        if not any(file.hunks for file in files):
            raise DataError(f"{name} has a patch without a hunk; provide the unified diff of the bug")

    @property
    def gold(self) -> str:
        """The unified diff that repairs the bug."""
        return reverse_diff(self.patch)

    def bug_layer(self, repository: Repository) -> dict[str, bytes | None]:
        """The changed files with their contents, to lay over the repository's tree.

        Raises DataError if the instance belongs to another repository or its patch does not fit the tree.
        """
        if self.repository != repository.key:
            raise DataError(f"instance {self.instance_id!r} belongs to {self.repository}, not to {repository.key}")
        paths = [file.old_path for file in parse_diff(self.patch) if file.old_path is not None]
        files = {path: (repository.root / path).read_bytes() for path in paths if (repository.root / path).is_file()}
        try:
            return apply_exactly(self.patch, files)
        except DataError as cause:
            raise DataError(f"instance {self.instance_id!r} and {repository.key}: {cause}") from None

    def to_row(self) -> dict[str, Any]:
        """The instance as a row with SWE-bench's field names."""
        name, version = check_key(self.repository)
        return {
            "instance_id": self.instance_id,
            "repo": name,
            "version": version,
            "base_commit": "",
            "patch": self.gold,
            "test_patch": "",
            "problem_statement": self.issue,
            "hints_text": "",
            "created_at": "",
            "FAIL_TO_PASS": list(self.fail_to_pass),
            "PASS_TO_PASS": list(self.pass_to_pass),
            "kind": list(self.kind),
            "difficulty": self.difficulty,
        }


def read_instance(row: Mapping[str, Any]) -> Instance:
    """The instance in a row. Lists of tests may be JSON texts, as in SWE-bench's first releases.

    Raises DataError naming the field that is missing or wrong, or as `Instance` does.
    """
    name = f"instance {row.get('instance_id')!r}"
    if "image_name" in row and "base_commit" not in row:
        raise DataError(
            f"{name} comes from SWE-smith: its patch introduces the bug, and its code is in the image "
            f"{row['image_name']!r:.100}; make instances from packages with `turnwise bugs make`"
        )
    if missing := [field for field in FIELDS if field not in row]:
        raise DataError(f"{name} lacks the field {missing[0]}")
    for field in ("instance_id", "repo", "version", "patch", "problem_statement"):
        if not isinstance(row[field], str):
            raise DataError(f"{name} has {field} = {row[field]!r}; it must be text")
    if "/" in row["repo"]:
        raise DataError(
            f"{name} has repo = {row['repo']!r:.100}; it must be the name of a package, not of a repository"
        )
    try:
        patch = reverse_diff(row["patch"])
    except DataError as cause:
        raise DataError(f"{name}: {cause}") from None
    return Instance(
        instance_id=row["instance_id"],
        repository=f"{row['repo']}=={row['version']}",
        patch=patch,
        fail_to_pass=_read_tests(name, "FAIL_TO_PASS", row["FAIL_TO_PASS"]),
        pass_to_pass=_read_tests(name, "PASS_TO_PASS", row["PASS_TO_PASS"]),
        kind=_read_tests(name, "kind", row.get("kind", [])),
        issue=row["problem_statement"],
        difficulty=str(row.get("difficulty", "")),
    )


def _read_tests(name: str, field: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list | tuple) or not all(isinstance(test, str) for test in value):
        raise DataError(f"{name} has a {field} that is not a list of strings")
    return tuple(value)


def load_instances(path: Path) -> tuple[Instance, ...]:
    """The instances of a JSONL file, in its order. Raises DataError naming the line that is wrong."""
    instances: dict[str, Instance] = {}
    for place, row in read_rows(path):
        try:
            instance = read_instance(row)
        except DataError as cause:
            raise DataError(f"{place}: {cause}") from None
        if instance.instance_id in instances:
            raise DataError(f"{place}: instance {instance.instance_id!r} appears twice; ids must be unique")
        instances[instance.instance_id] = instance
    if not instances:
        raise DataError(f"{path} has no instances")
    return tuple(instances.values())


def write_instances(path: Path, instances: Iterable[Instance]) -> None:
    """Write a JSONL file. Raises DataError if the folder cannot be written."""
    lines = [json.dumps(instance.to_row(), ensure_ascii=False) + "\n" for instance in instances]
    try:
        path.write_text("".join(lines), encoding="utf-8", errors="surrogatepass")
    except OSError as cause:
        raise DataError(f"cannot write {path}: {cause.strerror}; name a file in an existing folder") from cause


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and object of each line of a JSONL file. Raises DataError naming the place of a line that is not a JSON
    object."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogatepass").removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"cannot read {path}: {getattr(cause, 'strerror', None) or 'it is not UTF-8'}") from cause
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as cause:
            raise DataError(f"{path} line {number} is not JSON: {cause}") from None
        if not isinstance(row, dict):
            raise DataError(f"{path} line {number} is not a JSON object")
        yield f"{path} line {number}", row
