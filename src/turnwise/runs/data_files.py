"""Whether the files that a run's tasks and its warm-up come from are those it began with."""

from __future__ import annotations

from pathlib import Path

from turnwise.building.families import build_family
from turnwise.config.load import load_resolved
from turnwise.config.run import RunConfig
from turnwise.core.errors import DataError
from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.data_rows import read_rows
from turnwise.environments.mixture import list_families
from turnwise.store.checkpoint_folder import latest_checkpoint
from turnwise.store.data_files import (
    FileRecord,
    compare_taught,
    find_changes,
    list_used,
    read_records,
    record_file,
    write_records,
)
from turnwise.store.run_folder import CONFIG, RunFolder


def list_data_files(family: EnvironmentFamily) -> tuple[FileRecord, ...]:
    """The files of every family of a run, as they are now. Raises DataError for one that cannot be read."""
    files = [file for member in list_families(family) for file in getattr(member, "data_files", ())]
    return tuple(record_file(file.path, file.num_rows, pictures=getattr(file, "pictures", "")) for file in files)


def list_warmup_files(config: RunConfig) -> tuple[FileRecord, ...]:
    """The files that continual pre-training and a warm-up read, as they are now. Raises DataError for one that cannot
    be read."""
    named = (config.cpt.path, config.sft.path, config.sft.heldout_path)
    paths = [Path(path).expanduser() for path in named if path]
    return tuple(record_file(path, sum(1 for _ in read_rows(path)), "warm-up") for path in paths)


def find_task_changes(run: Path, family: EnvironmentFamily) -> list[str]:
    """How the files of tasks differ from those the run began with, one line each; none where it remembers none."""
    before = read_records(run)
    return [] if before is None else find_changes(list_used(before, "tasks"), list_data_files(family))


def check_data_files(run: Path, family: EnvironmentFamily) -> None:
    """Raise DataError naming file, digests and rows, with the remedy, where tasks would be others than the run's."""
    _refuse(run, find_task_changes(run, family))


def keep_data_files(folder: RunFolder, config: RunConfig, family: EnvironmentFamily) -> list[str]:
    """Remember the files of a run that begins; of one that goes on, see `check_continued`."""
    run = folder.path
    if read_records(run) is not None:
        return check_continued(run, config, family)
    now = (*list_data_files(family), *(list_warmup_files(config) if _warms_up(run) else ()))
    if now:
        write_records(run, now)
    return []


def check_continued(run: Path, config: RunConfig, family: EnvironmentFamily) -> list[str]:
    """Compare the files of a run that goes on with those that it remembers.

    Raises DataError naming file, digests and rows where one has changed that is read from here on, with the remedy.
    Returns one line for each file that the warm-up has learned from and that changed since.
    """
    before = read_records(run) or ()
    changes, taught = find_task_changes(run, family), list_used(before, "warm-up")
    if _warms_up(run) and taught:
        changes += find_changes(taught, list_warmup_files(config))
    _refuse(run, changes)
    return [] if _warms_up(run) else [f"{each}; the run goes on from its weights" for each in compare_taught(taught)[0]]


def _warms_up(run: Path) -> bool:
    """Whether a warm-up, if there is one, is still to come."""
    return latest_checkpoint(run) is None


def _refuse(run: Path, changes: list[str]) -> None:
    if changes:
        raise DataError(
            f"{'; '.join(changes)}. The run would read different data than at its start: restore the file, or accept "
            f"the new content with: turnwise data accept {run}"
        )


def accept_data_files(run: Path) -> list[str]:
    """Take the data files as they are now; what changed, in one line each, is an event of the run. What a warm-up that
    is over has learned from stays as it was.

    Raises StoreError for no run, DataError for a file that cannot be read.
    """
    folder = RunFolder.open(run)
    config, before = load_resolved(folder.path / CONFIG), read_records(folder.path) or ()
    tasks, taught = list_data_files(build_family(config)), list_used(before, "warm-up")
    changes = find_changes(list_used(before, "tasks"), tasks)
    if _warms_up(folder.path):
        now = list_warmup_files(config)
        changes += find_changes(taught, now)
        taught = now
    for text in changes:
        folder.append_event("data accepted", text)
    write_records(folder.path, (*tasks, *taught))
    return changes
