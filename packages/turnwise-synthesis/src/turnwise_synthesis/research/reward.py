"""The reward of a research report."""

from __future__ import annotations

from pydantic import Field

from turnwise.config.section import Section
from turnwise_synthesis.research.checked import CheckedReport


class ResearchWeights(Section):
    """Weights of the terms."""

    claims: float = Field(0.4, ge=0, le=1000)
    """Weight of the share of expected claims that are covered."""
    precision: float = Field(0.3, ge=0, le=1000)
    """Weight of that share times the share of claims that are supported among these and everything bad."""
    contradictions: float = Field(0.3, ge=0, le=1000)
    """Weight of the share of contradictions that are named; of covered claims where none was to be named."""
    fabricated: float = Field(0.3, ge=0, le=1000)
    """Penalty of as many citations of passages that do not exist as claims are expected; a part of it for fewer."""


def compute_research(report: CheckedReport, weights: ResearchWeights, *, is_right: bool, max_words: int) -> float:
    """Return `L ((a + b P) R + d C) - c F` where the answer is right, otherwise `-c F`.

    R is `CheckedReport.covered`, P its precision, C the share of contradictions that are named (R where none was to be
    named), F fabricated citations over expected claims, at most 1, and L = `max_words` times expected claims over the
    report's words, at most 1. Of R and C nothing is left of a claim that has a bad citation, and every repetition takes
    back what one claim earns (`count_clean`).
    """
    fabricated = min(1.0, report.num_fabricated / report.claims.expected)
    if not is_right:
        return 0.0 - weights.fabricated * fabricated
    covered = report.covered
    named = covered if report.named is None else report.named
    length = min(1.0, max_words * report.claims.expected / max(1, report.num_words))
    earned = (weights.claims + weights.precision * report.precision) * covered + weights.contradictions * named
    return length * earned - weights.fabricated * fabricated
