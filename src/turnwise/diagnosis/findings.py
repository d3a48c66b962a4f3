"""A finding: what is wrong with a run, how that is known, what to try first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BROKEN, NO_SIGNAL, STEPS, OUTCOME = 1, 2, 3, 4
"""Tiers of evidence, the strongest first: records prove that something is broken; the rewards give credit nothing to
compare, or the wrong thing; the steps are not what they should be; success alone shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One diagnosis."""

    cause: str
    """Its name in docs/diagnosis.md."""
    problem: str
    """What is wrong, in one clause."""
    evidence: tuple[str, ...]
    """Metrics with steps and values, and counts in the stored groups."""
    first: str
    """What to try first."""
    tier: int
    """One of the tiers above."""
    strength: float
    """How far the evidence is beyond its threshold: 1 is at it. Orders findings of one tier."""

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "cause": self.cause,
            "problem": self.problem,
            "evidence": list(self.evidence),
            "first": self.first,
            "tier": self.tier,
            "strength": round(self.strength, 3),
        }
