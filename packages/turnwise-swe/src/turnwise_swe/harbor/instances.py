"""Bugs in real repositories as Harbor's task folders, and back.

    NAME/instruction.md              the issue, and where the repository is
    NAME/task.toml                   limits; category "repository"
    NAME/environment/Dockerfile      Python, what the tests import, and the tree with the bug at /testbed
    NAME/environment/testbed/        that tree
    NAME/tests/instance.json         the instance in SWE-bench's field names, with the digest of the pristine tree
    NAME/tests/test.sh               runs judge.py, which writes the reward to /logs/verifier/reward.txt
    NAME/tests/pristine/             every file that a patch may not change
    NAME/solution/solve.sh           puts the files without the bug in place

What judges is the launcher and the reporter that grade patches here. A folder of Harbor's SWE-bench adapter, which
keeps its row in `tests/config.json`, is read too. Nothing of a folder is run here: the Dockerfile is neither built nor
read, so the repository must be one that this machine has.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.core.guests import guest_source
from turnwise_swe.repositories.grading import limit_run
from turnwise_swe.repositories.instance import FIELDS, Instance, read_instance
from turnwise_swe.repositories.repository import Repository
from turnwise_swe.repositories.resolution import EXCUSED
from turnwise_swe.repositories.testing import MAX_TEST_S, PACKAGE, build_request, suite_of

INSTANCE = "tests/instance.json"
ROW_FILES = (INSTANCE, "tests/config.json")
"""Places of an instance's row: ours, and that of Harbor's SWE-bench adapter."""
DIGEST = "tree_sha256"
"""The extra field, beside SWE-bench's, with the digest of the pristine tree."""

_PACKAGES = "/opt/packages"
_WHERE = (
    "\n\nThe repository is in /testbed. Change its source files so that the issue is solved; changes of tests and of "
    "their settings do not count.\n"
)
_DOCKERFILE = f"""FROM python:{{python}}-slim
COPY requirements.txt /opt/requirements.txt
RUN pip install --no-cache-dir --no-deps --target {_PACKAGES} -r /opt/requirements.txt
ENV PYTHONPATH={{import_path}}:{_PACKAGES} PYTHONDONTWRITEBYTECODE=1
COPY testbed /testbed
WORKDIR /testbed
"""
_TEST = f"#!/bin/sh\npython3 /tests/judge.py /testbed /tests {_PACKAGES} > /logs/verifier/reward.txt\n"
_TASK = """version = "1.0"

[metadata]
category = "repository"
difficulty = {difficulty}
tags = {tags}

[agent]
timeout_sec = 1800.0

[verifier]
timeout_sec = {verifier_s}
"""


def write_instance(folder: Path, instance: Instance, repository: Repository) -> Path:
    """Write an instance as a task folder below `folder`, named after its id; returns its path.

    Raises DataError if the instance does not fit the repository, its id cannot name a folder, the folder exists, or the
    disk refuses.
    """
    if not re.fullmatch(r"[\w\-][\w.\-]*", instance.instance_id):
        raise DataError(f"instance {instance.instance_id!r} has an id that is not a valid folder name; rename it")
    bug = instance.bug_layer(repository)
    place = folder / instance.instance_id
    files = _list_files(repository, instance, bug)
    try:
        place.mkdir(parents=True)
        for path, content in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
            (place / path).chmod(0o755 if path.endswith(".sh") or _is_executable(repository, path) else 0o644)
    except FileExistsError:
        raise DataError(f"{place} exists; name an empty folder") from None
    except OSError as cause:
        raise DataError(f"cannot write {place}: {cause.strerror}") from cause
    return place


def read_instance_folder(folder: Path) -> Instance:
    """The instance in a task folder, with the text of `instruction.md` as its issue.

    Raises DataError for a folder without the row of an instance, because its environment is a Dockerfile, which only
    Harbor can run, and for a malformed row.
    """
    path = next((folder / name for name in ROW_FILES if (folder / name).is_file()), None)
    if path is None:
        raise DataError(
            f"{folder}: its environment is a Dockerfile, which Turnwise does not build, and it has none of "
            f"{' and '.join(ROW_FILES)}, which would name a repository on this machine; run it with Harbor"
        )
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        instruction = (folder / "instruction.md").read_text(encoding="utf-8")
    except (OSError, ValueError) as cause:
        raise DataError(f"cannot read {folder}: {cause}") from cause
    if not isinstance(row, dict) or not set(FIELDS) <= set(row):
        raise DataError(f"{path}: not an instance row; expected an object with {', '.join(FIELDS)}")
    try:
        return read_instance({**row, "problem_statement": instruction.removesuffix(_WHERE)})
    except DataError as cause:
        raise DataError(f"{path}: {cause}") from None


def check_tree(folder: Path, repository: Repository) -> None:
    """Raise DataError if a folder of ours was made from another tree than the repository's."""
    if not (folder / INSTANCE).is_file():
        return
    digest = json.loads((folder / INSTANCE).read_text(encoding="utf-8")).get(DIGEST)
    if digest not in (None, repository.digest):
        raise DataError(
            f"{folder}: made from a different tree of {repository.key} ({str(digest)[:12]}; here it is "
            f"{repository.digest[:12]}); add the source distribution that it was made from"
        )


def _list_files(repository: Repository, instance: Instance, bug: dict[str, bytes | None]) -> dict[str, bytes]:
    """Path to content of every file of the folder."""
    tree = {
        path.relative_to(repository.root).as_posix(): path.read_bytes()
        for path in sorted(repository.root.rglob("*"))
        if path.is_file()
    }
    buggy = {path: content for path, content in {**tree, **bug}.items() if content is not None}
    row = {**instance.to_row(), DIGEST: repository.digest}
    texts = {
        "instruction.md": instance.issue + _WHERE,
        "task.toml": _TASK.format(
            difficulty=json.dumps(instance.difficulty or "unknown"),
            tags=json.dumps(list(instance.kind)),
            verifier_s=_run_s(repository, instance) + 60.0,
        ),
        "environment/Dockerfile": _DOCKERFILE.format(
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            import_path=":".join(f"/testbed/{path}".removesuffix("/.") for path in repository.import_folders),
        ),
        "environment/requirements.txt": _list_requirements(repository),
        INSTANCE: json.dumps(row, indent=1, ensure_ascii=False),
        "tests/request.json": json.dumps(_build_request(repository, instance, tree), indent=1),
        "tests/launcher.py": guest_source(PACKAGE, "launcher.py"),
        "tests/judge.py": resources.files(__package__).joinpath("judge.py").read_text(encoding="utf-8"),
        "tests/test.sh": _TEST,
        "solution/solve.sh": _write_solution(tree, bug),
    }
    return {
        **{path: text.encode("utf-8", "surrogatepass") for path, text in texts.items()},
        **{f"environment/testbed/{path}": content for path, content in buggy.items()},
        **{f"tests/pristine/{path}": content for path, content in tree.items() if repository.is_protected(path)},
        **{f"solution/files/{path}": tree[path] for path in bug if path in tree},
    }


def _build_request(repository: Repository, instance: Instance, tree: dict[str, bytes]) -> dict[str, Any]:
    """The request that the judge reads: the launcher's request, and the statuses that count."""
    ids = (*instance.fail_to_pass, *instance.pass_to_pass)
    run = build_request(
        suite_of(repository), ids=ids, hash_seed=0, is_reversed=False, observes=False, test_limit_s=MAX_TEST_S
    )
    before = {test: outcome.status for test, outcome in repository.baseline.outcomes.items()}
    return {
        "run": {**run, "deadline_s": _run_s(repository, instance)},
        "source_folders": list(repository.source_folders),
        "other_sources": [path for path in tree if not path.endswith(".py") and not repository.is_protected(path)],
        "fail_to_pass": list(instance.fail_to_pass),
        "pass_to_pass": {
            test: ["passed", *([before[test]] if before.get(test) in EXCUSED else [])] for test in instance.pass_to_pass
        },
    }


def _run_s(repository: Repository, instance: Instance) -> float:
    return limit_run(repository, (*instance.fail_to_pass, *instance.pass_to_pass)).wall_s


def _list_requirements(repository: Repository) -> str:
    """Name and version of everything that the tests import, except the package itself."""
    found = metadata.distributions(path=[str(repository.site_packages)])
    pins = {each.metadata["Name"]: each.version for each in found if each.metadata["Name"] != repository.name}
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def _write_solution(tree: dict[str, bytes], bug: dict[str, bytes | None]) -> str:
    lines = ["#!/bin/sh", "set -e", 'cd "${TESTBED:-/testbed}"', 'files="$(dirname "$0")/files"']
    for path in bug:
        name = shlex.quote(path)
        if path in tree:
            lines += [f"mkdir -p -- {shlex.quote(str(Path(path).parent))}", f'cp -- "$files"/{name} {name}']
        else:
            lines.append(f"rm -f -- {name}")
    return "\n".join(lines) + "\n"


def _is_executable(repository: Repository, path: str) -> bool:
    for prefix in ("environment/testbed/", "tests/pristine/", "solution/files/"):
        source = repository.root / path.removeprefix(prefix)
        if path.startswith(prefix) and source.is_file():
            return bool(source.stat().st_mode & 0o100)
    return False
