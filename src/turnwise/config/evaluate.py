"""Options of held-out evaluation and of the report."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, JsonValue, field_validator

from turnwise.config.section import Section

SELECTION = "selection"
"""Name of the set on which checkpoints are chosen."""


class HeldOutSetSection(Section):
    """Another set of held-out tasks, or another family; its key in `evaluate.sets` is its name in files and reports."""

    environment: str = ""
    """Like environment.name; empty means the environment of the recipe."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Keyword arguments of the family; of the recipe's own environment, changes to its arguments."""
    tasks: int = Field(0, ge=0)
    """Number of its held-out tasks, always the first; 0 means evaluate.tasks."""


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
    selection_tasks: int = Field(0, ge=0)
    """Number of held-out tasks, those after the first `tasks`, on which checkpoints are chosen (`train.keep_best`,
    `train.patience`) and nothing is reported; with 0 the same tasks choose and report."""
    sets: dict[str, HeldOutSetSection] = Field(default_factory=dict)
    """Further sets of tasks, by name, played by every evaluation."""
    num_workers: int = Field(0, ge=0)
    """Processes that play evaluations beside training, each with the checkpoint of its step; with 0 training waits for
    each evaluation."""
    deadline_s: float = Field(3600.0, gt=0)
    """Seconds that a run waits at its end for evaluations beside training; later ones are played with --resume."""

    @field_validator("sets")
    @classmethod
    def _check_names(cls, sets: dict[str, HeldOutSetSection]) -> dict[str, HeldOutSetSection]:
        for name in sets:
            if name == SELECTION:
                raise ValueError(f"{name!r} is the set of evaluate.selection_tasks; use another name")
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name):
                raise ValueError(f"{name!r} must be letters, digits and '-', and begin with a letter")
        if len({name.casefold() for name in sets}) < len(sets):
            raise ValueError("two names differ only in capitals; rename one")
        return sets


class ReportSection(Section):
    """Options of report.html."""

    examples: int = Field(6, ge=0)
    """Number of held-out tasks shown before and after training."""
