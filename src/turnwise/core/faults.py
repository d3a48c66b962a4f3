"""What a family says about an attempt that failed: the protocol, and the names that every family shares.

A fault is named by what the replies did, never by the reward alone. A family that has no name for an attempt says None;
`badcases.naming` then looks at how the attempt ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from turnwise.core.types import Task, Trajectory

FORMAT = "format"
LIMIT = "limit"
TOOL_FAILURE = "tool failure"
GAVE_UP = "gave up"
REPEATED = "repeated itself"

SHARED: Mapping[str, str] = {
    FORMAT: "The last reply, and those right before it, are neither a call nor an answer.",
    LIMIT: "A limit on turns or tokens ended the attempt.",
    TOOL_FAILURE: "A tool, the environment or the reward failed, whatever the replies were.",
    GAVE_UP: "It ended the attempt without an answer or a result, or answered that it does not know.",
    REPEATED: "It made a call again that had the same answer before, and got no further.",
}
"""Names that every family shares, and what each means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What went wrong in an attempt."""

    name: str
    turn: int | None
    """Index of the turn in which it first went wrong; None if no turn did."""
    detail: str = ""
    """What was done, and what would have been right, in a few words; "" if the name says it all."""


@runtime_checkable
class FaultFinder(Protocol):
    """Optional for an environment family: names for what goes wrong in its attempts."""

    fault_names: Mapping[str, str]
    """Every name that `find_fault` may give, and what it means in one sentence. Those of `SHARED` need no entry."""

    def find_fault(self, task: Task, trajectory: Trajectory) -> Fault | None:
        """Name what went wrong in an attempt that was scored and did not succeed, from its replies and tool records;
        None if none of the names fits. A pure function; `trajectory` has one conversation and at least one turn."""
        ...
