"""Run the programs of `guest/` in the sandbox: an order goes in, a line of JSON per candidate comes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import SandboxError
from turnwise.core.guests import guest_source
from turnwise_sandbox import errors as sandbox_errors
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limits, Program, Sandbox
from turnwise_swe.repositories.repository import Repository

PACKAGE = "turnwise_swe.bugs"
"""The package whose `guest/` holds the programs."""
LIMITS = Limits(
    wall_s=900.0,
    cpu_s=900,
    memory_bytes=2 << 30,
    output_bytes=64 << 20,
    num_pids=128,
    disk_bytes=256 << 20,
    num_files=20_000,
)
"""Limits of a program with a batch of candidates."""


async def run_guest(
    sandbox: Sandbox, repository: Repository, guest: str, order: Mapping[str, Any], limits: Limits
) -> Execution:
    """Run a module of `guest/` on a private copy of the pristine tree. Raises SandboxError if the sandbox fails."""
    program = Program(
        code=start_code(repository, guest),
        stdin=json.dumps(order).encode("ascii"),
        profile="std",
        network=repository.network,
        tree=Tree(layers=(repository.root,), visible=(repository.site_packages,)),
    )
    try:
        return await sandbox.run(program, limits)
    except sandbox_errors.SandboxError as cause:
        raise SandboxError(str(cause)) from cause


def start_code(repository: Repository, guest: str) -> str:
    """The program: an interpreter that runs a module of `guest/` and sees only the tree's import folders and the
    repository's packages."""
    return (
        "import os, sys\n"
        f"folders = [os.path.abspath(folder) for folder in {list(repository.import_folders)!r}]\n"
        f"path = os.pathsep.join([*folders, {str(repository.site_packages)!r}])\n"
        "home = os.environ.get('TMPDIR', '/tmp')\n"
        f"environment = {{**{_ENVIRONMENT!r}, 'PYTHONPATH': path, 'HOME': home, 'TMPDIR': home}}\n"
        f"code = {guest_source(PACKAGE, guest)!r}\n"
        "os.execve(sys.executable, [sys.executable, '-S', '-P', '-B', '-c', code], environment)\n"
    )


_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}
"""Environment variables, as for a run of tests (`turnwise_swe/repositories/guest/launcher.py`)."""


def read_rows(execution: Execution) -> list[dict[str, Any]]:
    """The JSON objects, one per line, that the program wrote before its end; a line that was cut off is left out."""
    rows: list[dict[str, Any]] = []
    for line in execution.stdout.split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows
