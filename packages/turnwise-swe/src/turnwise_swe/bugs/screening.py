"""Screen candidates in the sandbox: many in one program, which collects the tests once and forks for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from turnwise.core.errors import SandboxError
from turnwise_sandbox.types import Limits, Sandbox
from turnwise_swe.bugs.candidates import Candidate, statement_texts
from turnwise_swe.bugs.edits.source import Source, apply
from turnwise_swe.bugs.programs import LIMITS, read_rows, run_guest
from turnwise_swe.bugs.selection import Selection, cpu_limit_s
from turnwise_swe.repositories.repository import Repository

Status = Literal["ran", "stuck", "crashed", "equivalent", "unswappable", "lost"]
"""Outcome of a candidate in its fork; `guest/screen.py` explains each."""

WALL_S = 30.0
"""Real seconds per candidate. The limit of processor time is reached first unless the candidate waits for something."""
FORK_MEMORY_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate, its file, and the tests that judge it."""

    candidate: Candidate
    source: Source
    selection: Selection

    @property
    def edited(self) -> bytes:
        """The file's content with the edit."""
        return apply(self.source.content, self.candidate.replacements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What a fork reported about one candidate."""

    status: Status
    failing: tuple[str, ...] = ()
    """Tests that ran but did not pass."""
    passing: tuple[str, ...] = ()
    digest: str = ""
    """Digest of the edited statement's bytecode."""
    cpu_s: float = 0.0


async def screen(
    sandbox: Sandbox, repository: Repository, trials: Sequence[Trial], *, limits: Limits = LIMITS
) -> tuple[list[Screened], float]:
    """Screen a batch. Returns the results in the order of `trials`, and the processor seconds of all programs together.

    A candidate that ends its whole program is "crashed"; those after it run in a new program. Raises SandboxError if
    the sandbox fails or the tests cannot be collected.
    """
    results: list[Screened] = []
    cpu_s = 0.0
    while len(results) < len(trials):
        rest = trials[len(results) :]
        execution = await run_guest(sandbox, repository, "screen.py", build_order(repository, rest), limits)
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


def build_order(repository: Repository, trials: Sequence[Trial]) -> dict[str, Any]:
    """The order that `guest/screen.py` reads."""
    tests = list(dict.fromkeys(test for trial in trials for test in trial.selection.entering))
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
    tests = trial.selection.entering if trial.candidate.screened else ()
    return {
        "id": trial.candidate.candidate_id,
        "path": trial.candidate.path,
        "line": line,
        "before": before,
        "after": after,
        "tests": [numbers[test] for test in tests],
        "cpu_s": cpu_limit_s(tests, repository.baseline.durations),
    }


def to_screened(row: Mapping[str, Any], trial: Trial) -> Screened:
    """The result in a row. Anything unexpected in the row makes the candidate "crashed"."""
    tests, letters = trial.selection.entering, str(row.get("letters", ""))
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
