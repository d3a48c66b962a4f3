"""Run tests of a repository in a process that never imports the tested package, so that no patch can forge an outcome.

Two isolated programs: the tests with pytest in a tree without the package's own files, and the package in a tree with
the patch. The tests reach the package through stand-ins (turnwise_sandbox.grading): plain values are copied, everything
else stays in the package's process. Each test file has its own worker.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath
from typing import Any

from turnwise.core.errors import SandboxError
from turnwise.core.guests import guest_source
from turnwise_sandbox import errors as sandbox_errors
from turnwise_sandbox.grading.channel import CHANNEL_FD, PairRunner
from turnwise_sandbox.grading.grade import guest_modules
from turnwise_sandbox.trees import Layer, Tree
from turnwise_sandbox.types import Limits, Program
from turnwise_swe.repositories.repository import Repository
from turnwise_swe.repositories.testing import (
    DEADLINE_SHARE,
    LIMITS,
    MAX_TEST_S,
    PACKAGE,
    TestRun,
    build_request,
    read_run,
    suite_of,
)


async def run_separately(
    sandbox: PairRunner,
    repository: Repository,
    layers: Iterable[Layer] = (),
    *,
    ids: Collection[str],
    is_reversed: bool = False,
    test_limit_s: float = MAX_TEST_S,
    limits: Limits = LIMITS,
) -> TestRun:
    """Run tests of a repository: the package from the tree with further layers, the tests from the pristine tree.

    Arguments and result are those of `run_tests`; files run in the order of `ids`, and `is_tampered` is never set.
    `execution` is that of the tests' program, with the processor seconds of both.

    Raises SandboxError if the sandbox itself fails.
    """
    suite = suite_of(repository)
    request = build_request(
        suite, ids=ids, hash_seed=0, is_reversed=is_reversed, observes=False, test_limit_s=test_limit_s
    )
    request |= {
        "half": "tests",
        "reporter": guest_source(PACKAGE, "halves.py"),
        "outcomes": guest_source(PACKAGE, "reporter.py"),
        "sources": guest_modules(),
        "packages": sorted(PurePosixPath(folder).stem for folder in repository.source_folders),
        "local": sorted(find_local_modules(repository)),
        "channel": CHANNEL_FD,
        "deadline_s": limits.wall_s * DEADLINE_SHARE,
    }
    serving = request | {"half": "package", "outcomes": "", "deadline_s": limits.wall_s}

    def build_program(what: dict[str, Any], *on_top: Layer) -> Program:
        return Program(
            code=guest_source(PACKAGE, "launcher.py"),
            stdin=json.dumps(what).encode("ascii"),
            profile="std",
            network=suite.network,
            tree=Tree(layers=(repository.root, *on_top), visible=(suite.site_packages,)),
        )

    try:
        worker, tests = await sandbox.run_pair(
            build_program(serving, *layers), build_program(request, without_package(repository)), limits
        )
    except sandbox_errors.SandboxError as cause:
        raise SandboxError(str(cause)) from cause
    return read_run(dataclasses.replace(tests, cpu_s=tests.cpu_s + worker.cpu_s))


def find_local_modules(repository: Repository) -> set[str]:
    """Paths of the modules inside the package's folders that no patch can change: the package's tests."""
    return {path for path in _package_files(repository) if path.endswith(".py") and repository.is_protected(path)}


def without_package(repository: Repository) -> dict[str, bytes | None]:
    """The layer that removes every file that a patch may change. The `__init__.py` of a folder with tests stays, empty,
    because pytest derives the names of the test modules from it."""
    local = {PurePosixPath(path) for path in find_local_modules(repository)}
    packages = {parent / "__init__.py" for path in local for parent in path.parents}
    return {
        path: b"" if PurePosixPath(path) in packages else None
        for path in _package_files(repository)
        if not repository.is_protected(path)
    }


def _package_files(repository: Repository) -> list[str]:
    """Files of the source folders, relative with forward slashes."""
    found: list[str] = []
    for source in repository.source_folders:
        place = repository.root / source
        files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
        found += [path.relative_to(repository.root).as_posix() for path in files]
    return sorted(found)
