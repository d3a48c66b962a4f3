"""The run's record of the files that supply its tasks and its warm-up: `data.json`, one entry per file.

{"files": [{"path": "train.jsonl", "sha256": "9dc8...", "num_bytes": 52100, "num_rows": 1000, "use": "tasks"}]}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from turnwise.core.errors import DataError, StoreError
from turnwise.store.run_folder import write_json_atomic

DATA = "data.json"
Use = Literal["tasks", "warm-up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """A data file as it was when read."""

    path: str
    """Path as written in the recipe."""
    sha256: str
    num_bytes: int
    num_rows: int
    """Number of rows that are used."""
    use: Use = "tasks"
    pictures: str = ""
    """A hash of the pictures that its rows and those of the files beside it show, wherever they are; empty if none."""

    def __str__(self) -> str:
        return f"{self.sha256[:16]} ({self.num_rows:,} rows, {self.num_bytes:,} bytes)"


def record_file(path: Path, num_rows: int, use: Use = "tasks", *, pictures: str = "") -> FileRecord:
    """Read the file once and return its record. Raises DataError if it cannot be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            num_bytes = file.tell()
    except OSError as cause:
        raise DataError(f"cannot read {path} ({cause.strerror}); check the path") from cause
    return FileRecord(path=str(path), sha256=digest, num_bytes=num_bytes, num_rows=num_rows, use=use, pictures=pictures)


def write_records(run: Path, records: Iterable[FileRecord]) -> None:
    """Replace the run's record. Raises StoreError."""
    write_json_atomic(run / DATA, {"files": [asdict(each) for each in records]})


def read_records(run: Path) -> tuple[FileRecord, ...] | None:
    """Return the run's record; None if it was never written. Raises StoreError for a damaged file."""
    path = run / DATA
    try:
        return tuple(FileRecord(**each) for each in json.loads(path.read_bytes())["files"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise StoreError(f"cannot read {path} ({type(cause).__name__}: {cause}); restore the file") from cause


def list_used(records: Iterable[FileRecord], use: Use) -> tuple[FileRecord, ...]:
    """Return the records of files that are read for one purpose."""
    return tuple(each for each in records if each.use == use)


def compare_taught(records: Iterable[FileRecord]) -> tuple[list[str], list[str]]:
    """Compare the files of a finished warm-up: returns how those that still exist differ, one line each, and the paths
    of those that are gone, which the run no longer needs."""
    changes, gone = [], []
    for record in list_used(records, "warm-up"):
        try:
            now = record_file(Path(record.path), record.num_rows, record.use)
        except DataError:
            gone.append(record.path)
            continue
        if now.sha256 != record.sha256:
            changes.append(
                f"{record.path}: SHA-256 {record.sha256[:16]} ({record.num_bytes:,} bytes) when the warm-up learned it,"
                f" now {now.sha256[:16]} ({now.num_bytes:,} bytes)"
            )
    return changes, gone


def find_changes(before: Sequence[FileRecord], now: Sequence[FileRecord]) -> list[str]:
    """Return how files differ from those recorded, one line each; compared by place in the recipe, so that a file may
    move."""
    if len(before) != len(now):
        names = [", ".join(each.path for each in records) or "none" for records in (before, now)]
        return [f"the run began with the data files {names[0]}, and there are now {names[1]}"]
    changes = []
    for old, new in zip(before, now, strict=True):
        if old.sha256 != new.sha256:
            changes.append(f"{new.path}: SHA-256 {old} when the run began, now {new}")
        elif old.pictures != new.pictures:
            changes.append(
                f"{new.path}: the pictures of its rows, or of the files beside it, have the hash "
                f"{old.pictures[:16] or 'of none'} when the run began, now {new.pictures[:16] or 'of none'}"
            )
    return changes
