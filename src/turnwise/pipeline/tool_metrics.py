"""Calls, seconds and errors of a step by tool."""

from __future__ import annotations

from collections.abc import Iterable

from turnwise.core.metrics import Mean, Metric, Sum
from turnwise.core.types import ToolRecord, Trajectory

MAX_TOOLS = 30
"""Tools with metrics of their own; the rest share those of `OTHER`."""
UNKNOWN, OTHER = "unknown", "other"
"""Calls of names that no tool has, which a model may make up without end, and of the tools that are called least."""


def compute_tool_metrics(trajectories: Iterable[Trajectory]) -> dict[str, Metric]:
    """`tool/NAME_calls`, `tool/NAME_seconds` and `tool/NAME_errors` of every tool that was called.

    Environments that keep no record of calls have none.
    """
    records: dict[str, list[ToolRecord]] = {}
    for trajectory in trajectories:
        for turn in trajectory.turns:
            for record in turn.tool_records:
                records.setdefault(record.call.name, []).append(record)
    by_name: dict[str, list[ToolRecord]] = {}
    for name, calls in records.items():
        # What never ran took no time at all: there is no such tool, or all of its calls were malformed.
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
