"""Harbor's task folders as a format of `turnwise data convert`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from turnwise.exchange.folder_formats import FolderFormat
from turnwise.exchange.task_rows import TaskRow
from turnwise_swe.harbor.tasks import find_tasks, read_task, write_task


def read_tasks(source: Path) -> Iterator[tuple[str, TaskRow]]:
    """Every task of a folder with its own folder. Raises DataError as `find_tasks` and `read_task` do."""
    for folder in find_tasks(source):
        yield str(folder), read_task(folder)


HARBOR = FolderFormat(read=read_tasks, write=write_task)
