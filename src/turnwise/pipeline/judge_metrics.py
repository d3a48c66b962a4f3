"""What judges did in a step, from the judgements stored with its trajectories; and whether their agreement with the
truth drifts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.core.metrics import Mean, Metric, Sum
from turnwise.core.types import Trajectory
from turnwise.core.verdicts import Judgement, Verdict
from turnwise.pipeline.drift import Drift

HALF = 0.5
"""The score and the truth from which something is good."""


def compute_judge_metrics(trajectories: Sequence[Trajectory]) -> dict[str, Metric]:
    """Return `judge/NAME_...` for every judge that was asked; `trajectories` include discarded attempts."""
    by_judge: dict[str, list[Judgement]] = defaultdict(list)
    for trajectory in trajectories:
        for judgement in trajectory.judgements:
            by_judge[judgement.judge].append(judgement)
    metrics: dict[str, Metric] = {}
    for name, judgements in sorted(by_judge.items()):
        verdicts = [each.verdict for each in judgements if each.verdict is not None]
        usages = [each.usage for each in judgements]
        failed = sum(each.usage.attempts - (each.verdict is not None) for each in judgements if each.usage.attempts)
        values: dict[str, Metric] = {
            "questions": Sum(len(judgements)),
            "cached": Sum(sum(each.usage.attempts == 0 and each.verdict is not None for each in judgements)),
            "failures": Sum(failed),
            "unanswered": Sum(len(judgements) - len(verdicts)),
            "prompt_tokens": Sum(sum(usage.prompt_tokens for usage in usages)),
            "reply_tokens": Sum(sum(usage.reply_tokens for usage in usages)),
            "cost": Sum(math.fsum(usage.cost for usage in usages)),
        }
        if verdicts:
            values["score"] = Mean.of(verdict.score for verdict in verdicts)
        asked = [verdict.seconds for verdict in verdicts if verdict.usage.attempts]
        if asked:
            values["seconds"] = Mean.of(asked)
        known = list_known(judgements)
        if known:
            values["agreement"] = Mean.of(float(_agrees(verdict, truth)) for verdict, truth in known)
            values["excess"] = Mean.of(verdict.score - truth for verdict, truth in known)
        metrics |= {f"judge/{name}_{what}": value for what, value in values.items()}
    return metrics


def list_known(judgements: Sequence[Judgement]) -> list[tuple[Verdict, float]]:
    """Return the verdicts whose truth is known, with it."""
    return [(each.verdict, each.truth) for each in judgements if each.verdict is not None and each.truth is not None]


class DriftWatch:
    """Compares how often each judge agrees with the truth: in the first questions of the run, and in the latest."""

    def __init__(self) -> None:
        self._judges: dict[str, Drift] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold: by judge, whether it agreed in the first and in the latest questions."""
        return {name: drift.state() for name, drift in self._judges.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._judges = {name: Drift.restore(each) for name, each in state.items()}

    def follow(self, trajectories: Sequence[Trajectory]) -> list[str]:
        """Count a step's judgements; return an alarm for every judge that agrees less than at the beginning, or in
        fewer than half of the questions."""
        for trajectory in trajectories:
            for judgement in trajectory.judgements:
                for verdict, truth in list_known([judgement]):
                    self._judges.setdefault(judgement.judge, Drift()).add(int(_agrees(verdict, truth)))
        return [text for name, drift in self._judges.items() if (text := _describe(name, drift))]


def _describe(name: str, drift: Drift) -> str:
    """Return the alarm; empty while there is none."""
    if drift.is_below(HALF):
        return (
            f"alarm: judge {name!r} is on the wrong side of the truth more often than not, and the policy may be "
            f"learning its faults; see judge/{name}_agreement, and give its labels texts like those of the policy"
        )
    if drift.has_fallen():
        return (
            f"alarm: judge {name!r} agrees less with the truth than at the beginning of the run, and the policy may be "
            f"learning its faults; see judge/{name}_agreement and judge/{name}_excess, read the best-scored episodes, "
            "change the judge, or take an earlier checkpoint"
        )
    return ""


def _agrees(verdict: Verdict, truth: float) -> bool:
    return (verdict.score >= HALF) == (truth >= HALF)
