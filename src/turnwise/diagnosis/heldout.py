"""Rules on held-out evaluations: do they fall while training rises, can they see a change at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from turnwise.diagnosis import thresholds as limit
from turnwise.diagnosis.findings import NO_SIGNAL, OUTCOME, Finding
from turnwise.diagnosis.record import Record

Z_95 = 1.96


def find_overfitting(record: Record) -> Finding | None:
    """Held-out success falls while that of training rises."""
    rows = record.heldout
    truth = record.truth
    if len(rows) < 2 or truth is None:
        return None
    best, last = max(rows, key=lambda row: float(row["success"])), rows[-1]
    lost = best["success"] - last["success"]
    seen = []
    if lost >= limit.LEAST_CHANGE and lost >= Z_95 * math.hypot(_error(best), _error(last)):
        seen.append(f"held-out success {_show(best)} at best and {_show(last)} at the end")
    if not record.learned:
        seen += [
            f"held-out tasks of kind {row['kind']}: {row['first']:.2f} before and {row['second']:.2f} after, the same "
            f"{row['n']} tasks (p = {row['p_holm']:.2g})"
            for row in record.compared
            if row["kind"] != "all" and row["difference"] <= -limit.LEAST_CHANGE and row["p_holm"] < limit.CHANCE
        ]
    is_solved = truth.after > limit.SOLVED and truth.after > last["success"] + limit.DEVIATIONS * _error(last)
    if not seen or not (is_solved or truth.is_up(limit.LEAST_CHANGE, limit.DEVIATIONS)):
        return None
    return Finding(
        cause="overfitting",
        problem="held-out success falls while success in training rises or is high: what is learned does not carry "
        "over",
        evidence=(*seen, str(truth)),
        first="go on from the best checkpoint (--step best); train on more tasks, of the kinds of the held-out set",
        tier=NO_SIGNAL,
        strength=1.5,
    )


def find_blind_evaluation(record: Record) -> Finding | None:
    """The evaluation is too small to see what changed."""
    rows = record.heldout
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    width = Z_95 * math.hypot(_error(first), _error(last))
    if abs(last["success"] - first["success"]) > width or width < 2 * limit.WIDE:
        return None
    return Finding(
        cause="evaluation_noise",
        problem="the noise of the evaluation is larger than what changed: it cannot say whether the run learns",
        evidence=(
            f"held-out success {_show(first)} before and {_show(last)} after, on {last['n']} tasks",
            f"a difference below {width:.2f} is not seen",
        ),
        first=f"raise evaluate.tasks: {math.ceil(last['n'] * (width / 0.1) ** 2)} tasks see a difference of 0.1",
        tier=OUTCOME,
        strength=width / limit.WIDE,
    )


def _error(row: Mapping[str, Any]) -> float:
    """Return a standard error from the row's 95% interval."""
    return float(row["high"] - row["low"]) / (2 * Z_95)


def _show(row: Mapping[str, Any]) -> str:
    return f"{row['success']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
