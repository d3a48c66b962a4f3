"""Held-out evaluation and the report."""

from __future__ import annotations

from typing import Literal

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
    top_p: float = Field(1.0, gt=0, le=1)
    """Mass of the most likely tokens that are kept; 1 keeps all. Evaluation may truncate: it trains nothing."""
    top_k: int = Field(0, ge=0)
    """How many of the most likely tokens are kept; 0 keeps all."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Tokens less likely than this share of the likeliest one are dropped; 0 keeps all."""
    grammar: Literal["none", "calls"] = "none"
    """As rollout.grammar, of evaluations."""
    controls: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Further evaluations after RL: name to changes of `environment.args` (a tool switched off, documents shuffled);
    with environment.mixture, name to label to changes."""


class ReportSection(Section):
    """report.html."""

    examples: int = Field(6, ge=0)
    """Held-out tasks shown before and after."""
