"""The file of tasks near failures: what was measured, what was wanted, every task, and what became of the others.

    {"kind": "plan", "environment": "search_qa", "args": {...}, "rates": [...], "weights": {...}, ...}
    {"kind": "task", "index": 912, "id": "...", "of": "2hop", "near": "..."}
    {"kind": "end", "outcomes": {"made": 40, "other kind": 160}, "missing": {}}

The order of its lines is the order of the tasks. A file without its last line was not finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError
from turnwise.store.run_folder import write_bytes_atomic
from turnwise_synthesis.failures.making import MadeTask, MadeTasks


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """The content of a file."""

    plan: Mapping[str, Any]
    """What was measured and wanted; `environment` and `args` name the family."""
    made: MadeTasks


def write_tasks(path: Path, content: TaskFile) -> None:
    """Write the file, all of it or nothing. Raises StoreError."""
    rows: list[dict[str, Any]] = [{"kind": "plan", **content.plan}]
    rows += [
        {"kind": "task", "index": each.index, "id": each.id, "of": each.kind, "near": each.near}
        for each in content.made.tasks
    ]
    rows.append({"kind": "end", "outcomes": dict(content.made.outcomes), "missing": dict(content.made.missing)})
    write_bytes_atomic(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def read_tasks(path: Path) -> TaskFile:
    """Read the file. Raises DataError naming file and line for one that is none or was not finished."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise DataError(f"{path} cannot be read: {cause}") from cause
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if row["kind"] == "task":
                int(row["index"]), str(row["id"]), str(row["of"]), str(row["near"])
            elif row["kind"] == "plan":
                str(row["environment"]), dict(row["args"])
            rows.append(row)
        except (ValueError, KeyError, TypeError) as cause:
            raise DataError(
                f"{path}, line {number}: it is no line of such a file ({cause!r}); write it again"
            ) from None
    kinds = [row["kind"] for row in rows]
    if kinds[:1] != ["plan"] or kinds[-1:] != ["end"] or {*kinds[1:-1]} - {"task"}:
        raise DataError(
            f"{path} is no finished file of tasks: it must have a plan, tasks and an end; write it again with "
            "`turnwise failures`"
        )
    tasks = tuple(MadeTask(index=row["index"], id=row["id"], kind=row["of"], near=row["near"]) for row in rows[1:-1])
    if not tasks:
        raise DataError(f"{path} has no task: {rows[-1]['outcomes']}")
    end = rows[-1]
    return TaskFile(plan=rows[0], made=MadeTasks(tasks=tasks, outcomes=end["outcomes"], missing=end["missing"]))
