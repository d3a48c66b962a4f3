"""The outcome of one test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Status = Literal["passed", "failed", "error", "skipped", "xfailed", "xpassed"]
"""pytest's statuses: "error" is a failure outside the test's own call, "xfailed" a failure that was announced,
"xpassed" a test that passed although its failure was announced."""

STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one test, as the reporter in the tests' process saw it."""

    status: Status
    duration_s: float = 0.0
    """Seconds of real time of the test with its fixtures, less the time in which other work had the processor."""
    cpu_s: float = 0.0
    """Processor seconds of the tests' process in that time, not counting processes that the test started."""
    message: str = ""
    """The reason in one line; "" for a test that passed."""
    details: str = ""
    """The traceback, cut in the middle to 4,000 characters; "" for a test that passed."""

    def to_row(self) -> dict[str, Any]:
        """The outcome as JSON, without empty texts."""
        row: dict[str, Any] = {"status": self.status, "duration_s": self.duration_s, "cpu_s": self.cpu_s}
        return row | {name: text for name in ("message", "details") if (text := getattr(self, name))}


def read_outcome(row: Mapping[str, Any]) -> Outcome:
    """The outcome in a row of `Outcome.to_row` or of the reporter; further keys are ignored.

    Raises ValueError, KeyError or TypeError for anything else.
    """
    status = row["status"]
    if status not in STATUSES:
        raise ValueError(f"status is {status!r}; it must be one of {', '.join(STATUSES)}")
    return Outcome(
        status=status,
        duration_s=float(row["duration_s"]),
        cpu_s=float(row["cpu_s"]),
        message=str(row.get("message", "")),
        details=str(row.get("details", "")),
    )
