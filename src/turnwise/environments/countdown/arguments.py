"""The keyword arguments of the family `countdown`."""

from __future__ import annotations

from pydantic import Field

from turnwise.environments.arguments import FamilyArguments, Share


class CountdownArguments(FamilyArguments):
    """Targets to be reached from numbers.

    There are no tools, so the limits of tools are not read.
    """

    numbers: int = Field(3, ge=2, le=4)
    """Numbers per task; an episode has one operation fewer."""
    limit: int = Field(24, ge=12, le=99)
    """Largest result an operation may have, and largest target."""
    naive_sight: Share = 0.0
    """Probability with which the naive policy sees, before the last operation, an operation that keeps the target
    reachable."""
