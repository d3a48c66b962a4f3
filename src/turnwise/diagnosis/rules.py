"""The rules, and the diagnosis that they make together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnwise.diagnosis import credit, heldout, replies, rewards, sampling, signals, steps
from turnwise.diagnosis.findings import Finding
from turnwise.diagnosis.record import Record

Rule = Callable[[Record], Finding | None]

RULES: tuple[Rule, ...] = (
    steps.find_frozen,
    steps.find_observations,
    sampling.find_apart,
    replies.find_failing_tool,
    signals.find_duplicates,
    rewards.find_noise,
    credit.find_credit,
    replies.find_truncation,
    replies.find_format,
    signals.find_constant_reward,
    signals.find_too_easy,
    signals.find_too_hard,
    signals.find_small_groups,
    rewards.find_hacking,
    rewards.find_reward_without_truth,
    heldout.find_overfitting,
    steps.find_high_rate,
    steps.find_clipping,
    sampling.find_staleness,
    steps.find_divergence,
    replies.find_collapse,
    replies.find_growth,
    replies.find_drift,
    steps.find_low_rate,
    heldout.find_blind_evaluation,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is wrong with a run, in the order of evidence."""

    findings: tuple[Finding, ...]
    learned: bool
    """Whether success rose beyond chance, in training or on held-out tasks."""
    num_steps: int
    ended: str
    """The error that ended the run; "" if none is known."""
    missing: tuple[str, ...]
    """What could not be judged, and why."""

    def to_json(self) -> dict[str, Any]:
        """Return the diagnosis as plain data."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "learned": self.learned,
            "steps": self.num_steps,
            "ended": self.ended,
            "missing": list(self.missing),
        }


def diagnose(record: Record) -> Diagnosis:
    """Ask every rule, and order what they find: by tier, then by strength."""
    found: dict[str, Finding] = {}
    for rule in RULES:
        finding = rule(record)
        if finding is not None:
            found.setdefault(finding.cause, finding)
    ordered = sorted(found.values(), key=lambda finding: (finding.tier, -finding.strength))
    return Diagnosis(
        findings=tuple(ordered),
        learned=record.learned,
        num_steps=len(record.steps),
        ended=record.ended,
        missing=tuple(_list_missing(record)),
    )


def _list_missing(record: Record) -> list[str]:
    missing = []
    if len(record.steps) < 4:
        missing.append(f"{len(record.steps)} RL steps are too few to see a change; 4 are needed")
    if not record.groups:
        missing.append("no stored group of one role: noise, credit, tools and copies are not judged")
    if len(record.heldout) < 2:
        missing.append("fewer than two held-out evaluations: overfitting and evaluation noise are not judged")
    strange = sorted({name for row in record.steps for name, value in row.items() if value is None})
    if strange:
        steps_ = [int(row["step"] or 0) for row in record.steps if None in row.values()]
        missing.append(
            f"not finite in {len(steps_)} steps, the first of them {steps_[0]}: {', '.join(strange[:4])}; these values "
            "are left out"
        )
    return missing
