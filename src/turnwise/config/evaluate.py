"""Options of held-out evaluation and of the report."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class EvaluateSection(Section):
    """Evaluation before RL, after RL, and every so many steps."""

    tasks: int = Field(500, ge=0)
    """Number of held-out tasks, always the first of the split; 0 disables evaluation."""
    samples: int = Field(1, ge=1)
    """Attempts per task: success is then their mean (mean@k), reported with the share of tasks solved by one of k
    attempts (pass@k). More than one needs a temperature above 0."""
    every: int = Field(0, ge=0)
    """RL steps between evaluations during training; 0 makes none."""
    temperature: float = Field(0.0, ge=0)
    """Sampling temperature; 0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Probability mass of the most likely tokens to keep; 1 keeps all. Training has no such option."""
    top_k: int = Field(0, ge=0)
    """Number of most likely tokens to keep; 0 keeps all."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Minimum probability of a token to be kept, relative to the most likely token; 0 keeps all."""
    grammar: Literal["none", "calls"] = "none"
    """Like rollout.grammar, for evaluations."""
    controls: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Additional evaluations after RL, by name, each with its changes to `environment.args` (search off, documents
    shuffled)."""


class ReportSection(Section):
    """Options of report.html."""

    examples: int = Field(6, ge=0)
    """Number of held-out tasks shown before and after training."""
