"""Calls, seconds and errors of a step, by tool."""

from __future__ import annotations

from collections.abc import Iterable

from turnwise.core.metrics import Mean, Metric, Sum
from turnwise.core.types import ToolRecord, Trajectory

MAX_TOOLS = 30
"""Most tools with their own metrics; the rest share those of `OTHER`."""
UNKNOWN, OTHER = "unknown", "other"
"""Names for calls of tools that do not exist, which a model may invent without end, and for the least-called tools."""


def compute_tool_metrics(trajectories: Iterable[Trajectory]) -> dict[str, Metric]:
    """Compute `tool/NAME_calls`, `tool/NAME_seconds` and `tool/NAME_errors` of every tool that was called.

    Environments that keep no record of calls have none.
    """
    records: dict[str, list[ToolRecord]] = {}
    for trajectory in trajectories:
        for turn in trajectory.turns:
            for record in turn.tool_records:
                records.setdefault(record.call.name, []).append(record)
    by_name: dict[str, list[ToolRecord]] = {}
    for name, calls in records.items():
        # Calls that never ran took no time: there is no such tool, or all of its calls were malformed.
        runs = any(call.error is None or call.seconds > 0 for call in calls)
        by_name.setdefault(name if runs else UNKNOWN, []).extend(calls)
    ordered = sorted(by_name, key=lambda name: (-len(by_name[name]), name))
    if len(ordered) > MAX_TOOLS:
        rest = [call for name in ordered[MAX_TOOLS:] for call in by_name[name]]
        by_name = {name: by_name[name] for name in ordered[:MAX_TOOLS]}
        by_name[OTHER] = [*by_name.get(OTHER, []), *rest]
    metrics: dict[str, Metric] = {}
    for name, calls in sorted(by_name.items()):
        metrics |= {
            f"tool/{name}_calls": Sum(len(calls)),
            f"tool/{name}_seconds": Mean.of(call.seconds for call in calls),
            f"tool/{name}_errors": Mean.of(float(call.error is not None) for call in calls),
        }
    return metrics
