"""Which tasks belong together."""

from __future__ import annotations

from turnwise.core.types import Task

CLUSTER_KEYS = ("cluster", "world")
"""Entries of a payload that name what a task shares with others, the first that is there. A family names the cluster of
its tasks by `payload["cluster"]`; generated worlds have `payload["world"]`."""


def name_cluster(task: Task) -> str:
    """Return what a task shares with others, so that their results are no independent ones: its world, or whatever its
    payload names; the task itself if it names nothing."""
    for key in CLUSTER_KEYS:
        value = task.payload.get(key)
        if value is not None:
            return f"{task.environment}/{key} {value}"
    return task.id
