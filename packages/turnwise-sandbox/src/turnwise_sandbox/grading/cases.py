"""Grades a program by its output for given input, compared outside the sandbox."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Literal, Protocol

from turnwise_sandbox.types import Execution, Limits, Program

Comparison = Literal["exact", "tokens", "floats"]

_WHOLE = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EXACT = Context(prec=40, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
"""The difference of two numbers is rounded to 40 digits, the numbers themselves are not."""


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
    """Whether the words match in their order: they are equal, or `is_close_number` holds."""
    actual_words, expected_words = actual.split(), expected.split()
    return len(actual_words) == len(expected_words) and all(
        a == b or is_close_number(a, b, tolerance) for a, b in zip(actual_words, expected_words, strict=True)
    )


def is_close_number(actual: bytes, expected: bytes, tolerance: float = 1e-6) -> bool:
    """Whether two words that differ are decimal numbers of nearly the same value.

    Two whole numbers never are: 1234567891 is another number than 1234567890, and 101 other digits than 00101. Where a
    whole number is expected and one with a point or an exponent is given, they may differ by `tolerance`; where the
    expected one has a point or an exponent, by `tolerance` or by `tolerance` times its magnitude. Compared in decimal
    arithmetic, so that no digit is lost."""
    if not _NUMBER.fullmatch(actual) or not _NUMBER.fullmatch(expected):
        return False
    is_whole = _WHOLE.fullmatch(expected) is not None
    if is_whole and _WHOLE.fullmatch(actual):
        return False
    a, b = (Decimal(word.decode("ascii"), _EXACT) for word in (actual, expected))
    if not (a.is_finite() and b.is_finite()):  # an exponent beyond all limits
        return False
    scale = Decimal(1) if is_whole else _EXACT.max(Decimal(1), b.copy_abs())
    difference = _EXACT.subtract(a, b).copy_abs()
    return _EXACT.compare(difference, _EXACT.multiply(Decimal(str(tolerance)), scale)) <= 0


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
    """Run `program` in a fresh place for each case, with the case's input, as many at once as the sandbox has slots.

    A case passes if the program exited with status 0, hit no limit, lost no output, and its standard output matches the
    expected one under `comparison`. The program never sees the expected output.

    Args:
        limits: Limits of each run; None means `Limits()`.
        comparison: "exact" compares bytes, "tokens" words between white space, "floats" also accepts numbers with a
            point or an exponent within 1e-6 (see `is_close_number`).

    Raises:
        ValueError: There are no cases, or the comparison does not exist.
        SandboxError: The sandbox itself failed.
    """
    if not cases:
        raise ValueError("there are no cases; add at least one, because a program that is not run cannot pass")
    if comparison not in COMPARISONS:
        raise ValueError(f"unknown comparison {comparison!r}; use one of {sorted(COMPARISONS)}")
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
