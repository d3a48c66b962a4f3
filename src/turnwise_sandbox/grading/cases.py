"""Grades a program by its output for given input, compared outside the sandbox."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from turnwise_sandbox.types import Execution, Limits, Program

Comparison = Literal["exact", "tokens", "floats"]


class ProgramRunner(Protocol):
    """A sandbox that runs single programs."""

    async def run(self, program: Program, limits: Limits) -> Execution:
        """See `Sandbox.run`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An input and its expected output."""

    stdin: bytes
    expected: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """The result of one case."""

    passed: bool
    reason: str | None
    """Why the case did not pass; None if it passed."""
    execution: Execution


def is_exact(actual: bytes, expected: bytes) -> bool:
    """Whether the bytes are equal."""
    return actual == expected


def is_same_tokens(actual: bytes, expected: bytes) -> bool:
    """Whether the words, separated by ASCII white space, are equal and in the same order."""
    return actual.split() == expected.split()


def is_close(actual: bytes, expected: bytes, *, tolerance: float = 1e-6) -> bool:
    """Whether the words match in their order. Two words match if they are equal, or if both are finite decimal numbers
    that differ by at most `tolerance` or by `tolerance` times the expected one's magnitude."""
    actual_words, expected_words = actual.split(), expected.split()
    return len(actual_words) == len(expected_words) and all(
        a == b or is_close_number(a, b, tolerance) for a, b in zip(actual_words, expected_words, strict=True)
    )


def is_close_number(actual: bytes, expected: bytes, tolerance: float) -> bool:
    """Whether two words are finite numbers that differ by at most `tolerance`, absolute or relative."""
    try:
        a, b = float(actual), float(expected)
    except ValueError:
        return False
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance * max(1.0, abs(b))


COMPARISONS: dict[Comparison, Callable[[bytes, bytes], bool]] = {
    "exact": is_exact,
    "tokens": is_same_tokens,
    "floats": is_close,
}


async def grade_cases(
    sandbox: ProgramRunner,
    program: Program,
    cases: Sequence[Case],
    *,
    limits: Limits | None = None,
    comparison: Comparison = "tokens",
) -> tuple[CaseOutcome, ...]:
    """Run `program` in a fresh place for each case, with the case's input, as many at a time as the sandbox has slots.

    A case passes if the program exited with status 0, hit no limit, lost no output, and its standard output matches the
    expected one under `comparison`. The program never sees the expected output.

    Args:
        limits: Limits of each run; None means `Limits()`.
        comparison: "exact" compares bytes, "tokens" words between white space, "floats" also accepts numbers within
            1e-6, absolute or relative.

    Raises:
        ValueError: There are no cases, or the comparison does not exist.
        SandboxError: The sandbox itself failed.
    """
    if not cases:
        raise ValueError("there are no cases; give at least one, since a program that is not run cannot pass")
    if comparison not in COMPARISONS:
        raise ValueError(f"comparison {comparison!r} does not exist; use one of {sorted(COMPARISONS)}")
    runs = [
        asyncio.ensure_future(sandbox.run(dataclasses.replace(program, stdin=case.stdin), limits or Limits()))
        for case in cases
    ]
    try:
        executions = await asyncio.gather(*runs)
    finally:
        for run in runs:
            run.cancel()
    return tuple(judge(execution, case, comparison) for execution, case in zip(executions, cases, strict=True))


def judge(execution: Execution, case: Case, comparison: Comparison) -> CaseOutcome:
    """The outcome of a case whose program ended with `execution`."""
    reason = None
    if execution.limit is not None:
        reason = f"hit its {execution.limit} limit"
    elif execution.exit_code != 0:
        reason = f"ended with status {execution.exit_code}, signal {execution.signal}"
    elif execution.stdout_dropped:
        reason = "printed too much"
    elif not COMPARISONS[comparison](execution.stdout, case.expected):
        reason = "printed something else than expected"
    return CaseOutcome(passed=reason is None, reason=reason, execution=execution)
