"""Whether the files that a run's tasks come from are those it began with."""

from __future__ import annotations

from pathlib import Path

from turnwise.building.families import build_family
from turnwise.core.errors import DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.mixture import list_families
from turnwise.runs.evaluate import load_run
from turnwise.store.data_files import FileRecord, find_changes, read_records, record_file, write_records
from turnwise.store.run_folder import RunFolder


def list_data_files(family: EnvironmentFamily) -> tuple[FileRecord, ...]:
    """The files of every family of a run, as they are now. Raises DataError for one that cannot be read."""
    files = [file for member in list_families(family) for file in getattr(member, "data_files", ())]
    return tuple(record_file(file.path, file.num_rows) for file in files)


def keep_data_files(folder: RunFolder, family: EnvironmentFamily) -> None:
    """Remember the files of a run that begins, and compare those of one that goes on.

    Raises DataError naming file, digests and rows where one has changed, with the remedy.
    """
    now, before = list_data_files(family), read_records(folder.path)
    if before is None:
        if now:
            write_records(folder.path, now)
        return
    if changes := find_changes(before, now):
        raise DataError(
            f"{'; '.join(changes)}. Tasks and their split would be others: restore the file, or accept it as it is "
            f"with: turnwise data accept {folder.path}"
        )


def accept_data_files(run: Path) -> list[str]:
    """Take the data files as they are now; what changed, in one line each, is an event of the run.

    Raises StoreError for no run, DataError for a file that cannot be read.
    """
    folder, config = load_run(run)
    now = list_data_files(build_family(config))
    changes = find_changes(read_records(folder.path) or (), now)
    for text in changes:
        folder.append_event("data accepted", text)
    write_records(folder.path, now)
    return changes
