"""How often each fault happens in an evaluation, with intervals, as plain data for files, tables and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.badcases.divergence import METHODS, Divergence, Unknown
from turnwise.core.faults import Fault
from turnwise.core.types import Invalid, Task, Trajectory
from turnwise.evaluation.intervals import compute_clustered_interval

FILE = ".badcases.json"
"""What the name of an evaluation ends with in the name of its table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Badcase:
    """One attempt that failed."""

    task: Task
    trajectory: Trajectory
    fault: Fault
    divergence: Divergence | Unknown | None
    """None: it was not looked for."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        found = self.divergence
        return {
            "trajectory": str(self.trajectory.id),
            "task": self.task.id,
            "kind": self.task.payload.get("kind"),
            "name": self.fault.name,
            "turn": self.fault.turn,
            "detail": self.fault.detail,
            "stop": self.trajectory.stop.value,
            "turns": len(self.trajectory.turns),
            "diverges": found.turn if isinstance(found, Divergence) else None,
            "lost": found.lost if isinstance(found, Divergence) else None,
            "values": list(found.values) if isinstance(found, Divergence) else [],
            "method": found.method if isinstance(found, Divergence) else None,
            "why_not": found.reason if isinstance(found, Unknown) else None,
        }


def build_table(
    summary: Mapping[str, Any],
    badcases: Sequence[Badcase],
    played: Sequence[tuple[Task, Trajectory]],
    names: Mapping[str, str],
) -> dict[str, Any]:
    """Return the table of one evaluation: `evaluation`, `label`, `step`, `episodes`, `failed`, `invalid`, `faults` by
    falling count, `methods` and the `badcases`.

    A fault's `share` is that of all attempts in `played`, failed or not, so that the shares of two evaluations can be
    compared; its interval is that of `compute_clustered_interval`, in which the attempts at one task are a cluster.
    `kinds` counts a fault by kind of task.
    """
    by_id = {badcase.trajectory.id: badcase for badcase in badcases}
    tasks: dict[str, list[str]] = {}
    for task, trajectory in played:
        found = by_id.get(trajectory.id)
        tasks.setdefault(task.id, []).append("" if found is None else found.fault.name)
    counts: dict[str, int] = {}
    for badcase in badcases:
        counts[badcase.fault.name] = counts.get(badcase.fault.name, 0) + 1
    faults = []
    for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        low, high = compute_clustered_interval([[float(each == name) for each in task] for task in tasks.values()])
        kinds: dict[str, int] = {}
        for badcase in badcases:
            if badcase.fault.name == name:
                kind = str(badcase.task.payload.get("kind", "all"))
                kinds[kind] = kinds.get(kind, 0) + 1
        faults.append(
            {
                "name": name,
                "about": names.get(name, ""),
                "count": count,
                "share": count / len(played),
                "low": low,
                "high": high,
                "kinds": dict(sorted(kinds.items())),
            }
        )
    return {
        "evaluation": summary["name"],
        "label": summary["label"],
        "step": summary["step"],
        "episodes": len(played),
        "failed": len(badcases),
        "invalid": sum(isinstance(each.trajectory.reward, Invalid) for each in badcases),
        "faults": faults,
        "methods": _describe_methods(badcases),
        "badcases": [badcase.to_json() for badcase in badcases],
    }


def _describe_methods(badcases: Sequence[Badcase]) -> list[str]:
    """Say by which method how many divergences were found, and why others were not."""
    lines = []
    for method, text in METHODS.items():
        found = sum(isinstance(b.divergence, Divergence) and b.divergence.method == method for b in badcases)
        lines += [f"{found} of {len(badcases)} by {text}"] if found else []
    reasons: dict[str, int] = {}
    for badcase in badcases:
        reason = "not looked for (--most)" if badcase.divergence is None else ""
        reason = badcase.divergence.reason if isinstance(badcase.divergence, Unknown) else reason
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
    return lines + [
        f"{count} without: {reason}" for reason, count in sorted(reasons.items(), key=lambda e: (-e[1], e[0]))[:5]
    ]
