"""Options of held-out evaluation and of the report."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from turnwise.config.section import Section


class EvaluateSection(Section):
    """Evaluation before RL, after RL, and every so many steps."""

    tasks: int = Field(500, ge=0)
    """Number of held-out tasks, always the first of the split; 0 never evaluates."""
    samples: int = Field(1, ge=1)
    """Attempts at each task: success is then their mean (mean@k), beside the share of tasks that one of k attempts
    solves (pass@k). More than one needs a temperature above 0."""
    every: int = Field(0, ge=0)
    """RL steps between further evaluations; 0 makes none."""
    temperature: float = Field(0.0, ge=0)
    """Sampling temperature; 0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Probability mass of the most likely tokens that are kept; 1 keeps all. Training has no such option."""
    top_k: int = Field(0, ge=0)
    """Number of most likely tokens that are kept; 0 keeps all."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Smallest probability of a token that is kept, as a share of that of the likeliest token; 0 keeps all."""
    grammar: Literal["none", "calls"] = "none"
    """As rollout.grammar, for evaluations."""
    controls: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Further evaluations after RL, by name, each with its changes of `environment.args` (search off, documents
    shuffled)."""


class ReportSection(Section):
    """Options of report.html."""

    examples: int = Field(6, ge=0)
    """Number of held-out tasks shown before and after training."""
