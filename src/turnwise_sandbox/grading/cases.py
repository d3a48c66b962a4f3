"""Grades a program by what it prints for given input; the comparison is made here, where the program never was."""

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

    async def run(self, program: Program, limits: Limits = ...) -> Execution:
        """As `Sandbox.run`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input and the output it should give."""

    stdin: bytes
    expected: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """One case, run."""

    passed: bool
    reason: str | None
    """Why it did not pass; None when it did."""
    execution: Execution


def is_exact(actual: bytes, expected: bytes) -> bool:
    """The same bytes."""
    return actual == expected


def is_same_tokens(actual: bytes, expected: bytes) -> bool:
    """The same words in the same order, whatever ASCII white space is between them."""
    return actual.split() == expected.split()


def is_close(actual: bytes, expected: bytes, *, tolerance: float = 1e-6) -> bool:
    """The same words in the same order, where two words are also the same when both are finite decimal numbers that
    differ by at most `tolerance`, or by `tolerance` times the expected one's magnitude. NaN and infinity only equal
    themselves as words."""
    got, wanted = actual.split(), expected.split()
    return len(got) == len(wanted) and all(
        a == b or is_close_number(a, b, tolerance) for a, b in zip(got, wanted, strict=True)
    )


def is_close_number(actual: bytes, expected: bytes, tolerance: float) -> bool:
    """Two words are finite numbers close to each other."""
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
    """Run `program` once per case with the case's input, each from nothing, at the same time as far as the sandbox has
    room.

    A case passes when the program exited with status 0, hit no limit, lost no output, and `comparison` finds its
    standard output equal to the expected one. The program never sees what is expected.

    Args:
        limits: of each run; None is `Limits()`.
        comparison: "exact" bytes, "tokens" between white space, or "floats": tokens, numbers within 1e-6 absolute or
        relative.

    Raises:
        ValueError: no cases, or a comparison that does not exist.
        SandboxError: the sandbox itself failed.
    """
    if not cases:
        raise ValueError("no cases: a program that is not run cannot pass")
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
    """Whether one run's output is the expected one."""
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
