"""Held-out evaluation and the report."""

from __future__ import annotations

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class EvaluateSection(Section):
    """Before RL, after RL, and in between where asked."""

    tasks: int = Field(500, ge=0)
    """Held-out tasks, always the first ones of the split; 0 never evaluates."""
    every: int = Field(0, ge=0)
    """RL steps between further evaluations; 0 is none."""
    temperature: float = Field(0.0, ge=0)
    """0 is greedy."""
    controls: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Further evaluations after RL: name to changes of `environment.args` (a tool switched off, documents shuffled)."""


class ReportSection(Section):
    """report.html."""

    examples: int = Field(6, ge=0)
    """Held-out tasks shown before and after."""
