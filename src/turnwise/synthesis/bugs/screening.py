"""Screen candidates in the sandbox: many in one program, which collects the tests once and forks for each."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args

from turnwise.core.errors import SandboxError
from turnwise.repositories.repository import Repository
from turnwise.synthesis.bugs.candidates import Candidate, statement_texts
from turnwise.synthesis.bugs.edits.source import Source
from turnwise.synthesis.bugs.selection import Selection, cpu_limit_s
from turnwise_sandbox import errors as sandbox_errors
from turnwise_sandbox.trees import Tree
from turnwise_sandbox.types import Execution, Limits, Program, Sandbox

Status = Literal["ran", "stuck", "crashed", "equivalent", "unswappable", "lost"]
"""What became of a candidate in its fork; `guest/screen.py` explains each."""

LIMITS = Limits(
    wall_s=900.0,
    cpu_s=900,
    memory_bytes=2 << 30,
    output_bytes=64 << 20,
    num_pids=128,
    disk_bytes=256 << 20,
    num_files=20_000,
)
"""Of a program with a batch of candidates."""
WALL_S = 30.0
"""Real seconds of one candidate. The limit of processor time comes first unless it waits for something."""
FORK_MEMORY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate, its file, and the tests that judge it."""

    candidate: Candidate
    source: Source
    selection: Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What a fork told about one candidate."""

    status: Status
    failing: tuple[str, ...] = ()
    """Tests that ran and did not pass."""
    passing: tuple[str, ...] = ()
    digest: str = ""
    """Of the edited statement's bytecode."""
    cpu_s: float = 0.0


async def screen(
    sandbox: Sandbox, repository: Repository, trials: Sequence[Trial], *, limits: Limits = LIMITS
) -> tuple[list[Screened], float]:
    """Screen a batch: the results in the order of `trials`, and the processor seconds of all programs together.

    A candidate that ends its whole program is "crashed"; those after it get a program of their own. Raises SandboxError
    if the sandbox fails or the tests cannot be collected.
    """
    results: list[Screened] = []
    cpu_s = 0.0
    while len(results) < len(trials):
        rest = trials[len(results) :]
        execution = await _run(sandbox, repository, rest, limits)
        cpu_s += execution.cpu_s
        rows = read_rows(execution)
        failure = next((row["failed"] for row in rows if "failed" in row), None)
        if failure is not None or not rows:
            end = execution.stderr[-500:].decode("utf-8", "replace")
            remedy = f"`turnwise repos show {repository.key}` has its suite"
            raise SandboxError(
                f"{repository.key} cannot be screened: {failure or 'no test was collected'} (exit status "
                f"{execution.exit_code}, limit {execution.limit}); {remedy}. {end}"
            )
        results += [to_screened(row, trial) for row, trial in zip(rows[1:], rest, strict=False)]
        if len(rows) - 1 < len(rest):
            results.append(Screened(status="crashed"))
    return results, cpu_s


async def _run(sandbox: Sandbox, repository: Repository, trials: Sequence[Trial], limits: Limits) -> Execution:
    program = Program(
        code=start_code(repository),
        stdin=json.dumps(build_order(repository, trials)).encode("ascii"),
        profile="std",
        network=repository.network,
        tree=Tree(layers=(repository.root,), visible=(repository.site_packages,)),
    )
    try:
        return await sandbox.run(program, limits)
    except sandbox_errors.SandboxError as cause:
        raise SandboxError(str(cause)) from cause


def build_order(repository: Repository, trials: Sequence[Trial]) -> dict[str, Any]:
    """What `guest/screen.py` reads."""
    tests = list(dict.fromkeys(test for trial in trials for test in trial.selection.screening))
    numbers = {test: number for number, test in enumerate(tests)}
    plugins = [argument for plugin in repository.plugins for argument in ("-p", plugin)]
    return {
        "tests": tests,
        "files": list(dict.fromkeys(test.split("::")[0] for test in tests)),
        "arguments": [
            *("--rootdir=.", "-o", "addopts=", "-q", "--capture=sys", "--assert=plain", "-p", "no:cacheprovider"),
            *plugins,
            *repository.options,
        ],
        "wall_s": WALL_S,
        "memory_bytes": FORK_MEMORY_BYTES,
        "candidates": [_to_row(repository, trial, numbers) for trial in trials],
    }


def _to_row(repository: Repository, trial: Trial, numbers: Mapping[str, int]) -> dict[str, Any]:
    line, before, after = statement_texts(trial.source, trial.candidate)
    tests = trial.selection.screening if trial.candidate.screened else ()
    return {
        "id": trial.candidate.candidate_id,
        "path": trial.candidate.path,
        "line": line,
        "before": before,
        "after": after,
        "tests": [numbers[test] for test in tests],
        "cpu_s": cpu_limit_s(tests, repository.baseline.durations),
    }


def start_code(repository: Repository) -> str:
    """The program: an interpreter that sees the tree's import folders and the repository's packages, nothing else."""
    return (
        "import os, sys\n"
        f"folders = [os.path.abspath(folder) for folder in {list(repository.import_folders)!r}]\n"
        f"path = os.pathsep.join([*folders, {str(repository.site_packages)!r}])\n"
        "home = os.environ.get('TMPDIR', '/tmp')\n"
        f"environment = {{**{_ENVIRONMENT!r}, 'PYTHONPATH': path, 'HOME': home, 'TMPDIR': home}}\n"
        f"os.execve(sys.executable, [sys.executable, '-S', '-P', '-B', '-c', {guest_source()!r}], environment)\n"
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
"""As of a run of tests (`repositories/guest/launcher.py`)."""


@functools.cache
def guest_source() -> str:
    """The source text of `guest/screen.py`."""
    return resources.files("turnwise.synthesis.bugs.guest").joinpath("screen.py").read_text(encoding="utf-8")


def read_rows(execution: Execution) -> list[dict[str, Any]]:
    """The lines of JSON objects that the program wrote before its end; a line that was cut off is left out."""
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


def to_screened(row: Mapping[str, Any], trial: Trial) -> Screened:
    """The result of a row. What the row does not hold as expected makes the candidate crashed."""
    tests, letters = trial.selection.screening, str(row.get("letters", ""))
    status: Status | None = next((word for word in get_args(Status) if word == row.get("status")), None)
    if row.get("id") != trial.candidate.candidate_id or status is None:
        return Screened(status="crashed")
    ran = status == "ran" and len(letters) == len(tests)
    return Screened(
        status="crashed" if status == "ran" and not ran else status,
        failing=tuple(test for test, letter in zip(tests, letters, strict=True) if letter != "p") if ran else (),
        passing=tuple(test for test, letter in zip(tests, letters, strict=True) if letter == "p") if ran else (),
        digest=str(row.get("digest", "")),
        cpu_s=float(row.get("cpu_s", 0.0)),
    )
