"""The rule on credit: does it go to the turns that mattered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from turnwise.diagnosis import thresholds as limit
from turnwise.diagnosis.facts import CreditedTurn
from turnwise.diagnosis.findings import BROKEN, Finding
from turnwise.diagnosis.record import Record


def find_credit(record: Record) -> Finding | None:
    """Turns after which members fared better than others from the same state do not get more credit."""
    turns = [turn for group in record.groups if group.has_signal for turn in group.turns]
    parts = {
        "all turns": turns,
        "turns before a trajectory's last": [turn for turn in turns if not turn.is_last],
    }
    worst, where, count = 1.0, "", 0
    for name, each in parts.items():
        cosine = compute_cosine(each)
        if cosine is not None and cosine < worst:
            worst, where, count = cosine, name, len(each)
    if worst >= limit.CREDIT_COSINE or follows_length(record) is not None:
        return None
    return Finding(
        cause="credit",
        problem="credit goes to the wrong turns: replies that led to higher rewards than others in the same state do "
        "not get more of it",
        evidence=(
            f"cosine of advantage and outcome {worst:.2f} over {count} {where}; near 1 for outcomes in groups",
            f"credit.method={record.option('credit.method')}",
        ),
        first="read a stored trajectory beside its advantages (`turnwise algorithms explain`), and take "
        "credit.method=grpo for comparison",
        tier=BROKEN,
        strength=2.0 + (limit.CREDIT_COSINE - worst),
    )


def compute_cosine(turns: Sequence[CreditedTurn]) -> float | None:
    """Return the cosine of advantages and outcomes over turns; 0 if every advantage is 0, None with too few turns."""
    if len(turns) < limit.LEAST_TURNS:
        return None
    return _compute_cosine([turn.advantage for turn in turns], [turn.outcome for turn in turns])


def follows_length(record: Record) -> float | None:
    """Return the cosine of advantages and lengths of members, relative to their groups; None unless credit follows
    length much more than truth, and more than the rewards do: where they pay for length, they are to blame."""
    groups = [group for group in record.groups if group.advantages and any(group.advantages)]
    credit = [advantage for group in groups for advantage in group.advantages]
    if len(credit) < limit.LEAST_TURNS:
        return None
    lengths = _center([group.lengths for group in groups])
    truths, rewards = _center([group.truths for group in groups]), _center([group.rewards for group in groups])
    cosine = _compute_cosine(credit, lengths)
    others = abs(_compute_cosine(credit, truths)), abs(_compute_cosine(rewards, lengths))
    return cosine if abs(cosine) >= max(limit.LENGTH_COSINE, max(others) + limit.LENGTH_LEAD) else None


def _compute_cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of two vectors; 0 if one of them is 0."""
    sizes = math.fsum(each**2 for each in left) * math.fsum(each**2 for each in right)
    return math.fsum(a * b for a, b in zip(left, right, strict=True)) / math.sqrt(sizes) if sizes else 0.0


def _center(groups: Sequence[Sequence[float]]) -> list[float]:
    """Return all values, each relative to the mean of its group."""
    return [value - fmean(values) for values in groups for value in values]
