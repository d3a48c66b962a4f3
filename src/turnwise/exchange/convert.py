"""Convert a file or folder of tasks from one layout to another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError, DataError
from turnwise.environments.data_rows import load_rows
from turnwise.exchange.folder_formats import FolderFormat, find_format
from turnwise.exchange.row_files import write_rows
from turnwise.exchange.task_rows import Layout, TaskRow


def convert(
    source: Path,
    target: Path,
    *,
    source_format: str,
    target_format: str,
    columns: Mapping[str, Any],
    drop: Collection[str] = (),
) -> int:
    """Convert all tasks; returns how many. `columns` are added to every row, and those in `drop` are left out.

    Raises ConfigError for an unknown format or a column in `drop` that no row has, DataError with file and line for a
    row of the wrong layout. A file is then not written; a folder contains the tasks before that row.
    """
    reader, writer = find_format(source_format), find_format(target_format)
    tasks = _read(source, reader)
    if isinstance(writer, FolderFormat) and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target} is not an empty folder; name a new one")
    unknown = set(drop).difference(*(task.extra for _, task in tasks))
    if unknown:
        raise ConfigError(
            f"--drop {min(unknown)}: no row of {source} has this column in addition to those of its layout"
        )
    rows = []
    for number, (place, task) in enumerate(tasks, start=1):
        kept = {name: value for name, value in task.extra.items() if name not in drop}
        task = replace(task, extra={**kept, **columns})
        try:
            if isinstance(writer, FolderFormat):
                writer.write(target, number, task)
            else:
                rows.append(writer.write(task))
        except DataError as error:
            raise DataError(f"{place}: {error}") from None
    if isinstance(writer, Layout):
        write_rows(target, rows, places=[place for place, _ in tasks])
    return len(tasks)


def _read(source: Path, reader: Layout | FolderFormat) -> list[tuple[str, TaskRow]]:
    """Read each task with its place: file and line, or folder."""
    if isinstance(reader, FolderFormat):
        return list(reader.read(source))
    return [(f"{source}:{line}", task) for line, task in load_rows(source, reader.read)]
