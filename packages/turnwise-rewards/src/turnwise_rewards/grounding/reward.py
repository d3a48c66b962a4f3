"""The reward of a ledger: credit for claims, and for precision as far as there is credit, minus fabrication."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.section import Section
from turnwise_rewards.grounding.ledger import Cited, Ledger


class GroundingWeights(Section):
    """Weights of the three terms."""

    recall: float = Field(0.5, ge=0, le=1000)
    """Weight of the share of expected claims that are supported, each less for every bad citation of its own."""
    precision: float = Field(0.5, ge=0, le=1000)
    """Weight of that share times the share of supported claims among these and everything that is bad."""
    fabricated: float = Field(0.5, ge=0, le=1000)
    """Penalty of as many fabricated citations as claims are expected; a part of it for fewer, no more for further."""


def compute_grounding(ledger: Ledger, weights: GroundingWeights, *, is_open: bool = True) -> float:
    """Return `(a + b P) R - c F` with credit R (recall, less what is padded), precision P and F, fabricated citations
    over expected claims, at most 1; without `is_open`, which is that the answer is right, `-c F`.

    Between -c and a + b. P counts only as far as R does: a report of the one claim that is easiest does not earn all of
    it. What is not a supported claim raises nothing, because it is in no numerator, and F does not depend on the number
    of other citations.
    """
    fabricated = min(1.0, ledger.count_cited(Cited.FABRICATED) / ledger.expected)
    earned = (weights.recall + weights.precision * ledger.precision) * ledger.credit if is_open else 0.0
    return earned - weights.fabricated * fabricated
