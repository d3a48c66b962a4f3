"""What rewards without labels do to every question: its answers before training, and its success after.

    python benchmarks/unlabelled.py RUN...

Each RUN is the folder of a run that evaluated several attempts per task before and after RL. One line per run, and
over all runs with the same name and different seeds one line more.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.metrics import Mean
from turnwise.core.types import Scored, TrajectoryGroup
from turnwise.evaluation.intervals import wilson_interval
from turnwise.store.run_folder import RunFolder
from turnwise.store.trajectories import load_groups
from turnwise_rewards.unlabelled.answers import AnswerOptions, count_answers, read_voters


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of an evaluation."""

    right: int
    total: int
    is_label_right: bool
    """Whether the most common answer is the right one."""
    lead: float
    """Share of the most common answer minus that of the second."""


def read_question(group: TrajectoryGroup) -> Question:
    """Count a question's attempts."""
    counts = count_answers(read_voters(group, AnswerOptions())).most_common(2)
    scored = [(t, t.reward.total) for t in group.trajectories if isinstance(t.reward, Scored)]
    answers = read_voters(group, AnswerOptions())
    right = {answer for answer, (_, total) in zip(answers, scored, strict=True) if total == 1}
    total = len(scored)
    second = counts[1][1] if len(counts) > 1 else 0
    return Question(
        right=sum(total == 1 for _, total in scored),
        total=total,
        is_label_right=bool(counts) and counts[0][0] in right,
        lead=(counts[0][1] - second) / total if counts else 0.0,
    )
