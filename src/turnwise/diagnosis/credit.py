"""The rule on credit: does it go to the turns that mattered."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    if worst >= limit.CREDIT_COSINE:
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
    product = math.fsum(turn.advantage * turn.outcome for turn in turns)
    sizes = math.fsum(turn.advantage**2 for turn in turns) * math.fsum(turn.outcome**2 for turn in turns)
    return product / math.sqrt(sizes) if sizes else 0.0
