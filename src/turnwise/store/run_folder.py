"""One run on disk. Whole files are replaced atomically; lines are only appended, so nothing written is lost to a crash.

    format.json                      the number of this format
    config.json                      the resolved recipe
    data.json                        the data files that tasks come from (see `data_files`)
    metrics.jsonl                    one line per step and phase
    events.jsonl                     what happened to the run as a whole, one line each; never rewritten
    journal.jsonl                    the fate of every draw, each before its effect (see `journal`)
    groups/000/000000012.*           the trajectories of draw 12 (see `groups`)
    images/ab/abcdef....png          every picture that a prompt showed (see `pictures.store`)
    ledger.jsonl                     what became of every sampled token, one line per group (see `ledger`)
    steps/step_000012.npz            the advantages of RL step 12 (see `advantages`)
    groups/000/000000000.zip, steps/step_000000.zip    those of a hundred draws or steps (see `packs`)
    evaluations/NAME.*               trajectories and summary of one evaluation (see `trajectories`)
    outstanding.json                 steps whose evaluation beside training is not recorded (see `runs.evaluations`)
    selection.json                   which checkpoint the evaluations choose (see `runs.selection`)
    checkpoints/step_000012/         a Hugging Face directory plus trainer state (see `checkpoint_folder`)
    report.html
    writer.lock, writer.json         the process that writes the run (see `run_lock`)

This module handles files and lines; it reads no config and no tensor.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import StoreError

CONFIG = "config.json"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
LEDGER = "ledger.jsonl"
FORMAT_FILE = "format.json"
LOCK, WRITER = "writer.lock", "writer.json"
FORMAT = 2
"""The format of the run folders this version writes and reads."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run's folder, created by `create` or opened by `open`."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Make the folder, or use an empty one, and note the format. If two processes want the same name, one gets it.

        Raises StoreError when the folder is not empty or cannot be made.
        """
        taken = (
            f"{path} already holds a run or other files; continue it with --resume {path}, or change run.name "
            "or run.output"
        )
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise StoreError(taken)
            (path / EVENTS).touch(exist_ok=False)
        except StoreError:
            raise
        except FileExistsError as cause:
            raise StoreError(taken) from cause
        except OSError as cause:
            raise disk_error("create the run folder", path, cause) from cause
        folder = cls(path)
        folder.write_json(FORMAT_FILE, {"format": FORMAT})
        folder.append_event("created")
        return folder

    def discard(self) -> None:
        """Remove the folder of a run that was refused before anything happened.

        The folder stays if it holds other files.
        """
        with contextlib.suppress(OSError):
            for name in (CONFIG, FORMAT_FILE, EVENTS, LOCK, WRITER):
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run. Raises StoreError when the folder contains no run, or one in another format."""
        around = _find_run(path)
        if not (path / CONFIG).is_file() or (around is not None and not (path / FORMAT_FILE).is_file()):
            nothing = f"it holds no {CONFIG}; name a folder that `turnwise train` made"
            raise StoreError(f"{path} is not a run folder: {nothing if around is None else f'did you mean {around}?'}")
        check_format(path)
        return cls(path)

    def write_json(self, name: str, value: Any) -> None:
        """Write `name` below the folder, atomically. Raises StoreError when the disk refuses."""
        write_json_atomic(self.path / name, value)

    def append_metrics(self, step: int, phase: str, values: Mapping[str, float]) -> None:
        """Append one line: step, phase, time (Unix seconds) and `values`; a value that is not finite becomes null.

        Raises StoreError when the disk refuses; the file is then unchanged.
        """
        row: dict[str, Any] = {"step": step, "phase": phase, "time": round(time.time(), 3)}
        row |= {name: float(value) if math.isfinite(value) else None for name, value in values.items()}
        append_line(self.path / METRICS, row)

    def append_event(self, kind: str, text: str = "") -> None:
        """Append one line to the log of the run: "created", "resumed" or any other `kind`.

        Raises StoreError as above.
        """
        append_line(self.path / EVENTS, {"time": round(time.time(), 3), "kind": kind, "text": text})

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return all rows; a null was a number that is not finite. A last line cut off by a crash is left out.

        Raises StoreError naming file and line for any other line that is not a JSON object.
        """
        return list(read_lines(self.path / METRICS))

    def truncate(self, *, after_step: int, after_cpt: int = 0) -> None:
        """Forget metrics, ledger lines, advantages and evaluations of RL steps after `after_step`.

        The steps are about to run again. Groups and journal stay: the steps can be redone from them. Continual
        pre-training and the warm-up count their own steps and come before RL step 0, so they stay unless `after_step`
        is negative; -1 forgets the metrics of the warm-up too, and those of pre-training after its step `after_cpt`.
        Raises StoreError.
        """
        kept = [
            row
            for row in self.read_metrics()
            if (after_step >= 0 and (row["phase"] in ("cpt", "sft") or row["step"] <= after_step))
            or (after_step < 0 and row["phase"] == "cpt" and row["step"] <= after_cpt)
        ]
        write_bytes_atomic(self.path / METRICS, b"".join(to_line(row) for row in kept))
        if (self.path / LEDGER).exists():
            accounts = [row for row in read_lines(self.path / LEDGER) if row["step"] <= after_step]
            write_bytes_atomic(self.path / LEDGER, b"".join(to_line(row) for row in accounts))
        for folder in ("steps", "evaluations"):
            for file in sorted((self.path / folder).glob("*")):
                match = re.search(r"_(\d{6,})(?!\d)", file.name)
                if match and int(match.group(1)) > after_step:
                    _remove(file)


def _find_run(path: Path) -> Path | None:
    """Find the run that contains a path (a checkpoint or a file of it), else the newest run in the folder `path`."""
    for above in list(path.absolute().parents)[:2]:
        if (above / FORMAT_FILE).is_file() and (above / CONFIG).is_file():
            return above
    runs = [file.parent for file in path.glob(f"*/{FORMAT_FILE}")]
    return max(runs, key=lambda run: (run / FORMAT_FILE).stat().st_mtime, default=None)


def holds_model(config: Path) -> bool:
    """Whether a config.json is that of a model, whose file has the same name as a run's."""
    try:
        table = json.loads(config.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(table, dict) and "model_type" in table


def check_format(run: Path) -> None:
    """Raise StoreError naming the folder, its format and the remedy, unless it is a run folder of this format."""
    path = run / FORMAT_FILE
    try:
        value = json.loads(path.read_bytes())
        number = value["format"] if isinstance(value, dict) else None
    except FileNotFoundError:
        if holds_model(run / CONFIG):
            raise StoreError(
                f"{run} is a model folder, not a run folder; name a folder made by `turnwise train`"
            ) from None
        number = "1 (it has no format number)"
    except (OSError, ValueError, KeyError) as cause:
        raise StoreError(f"cannot read {path} ({type(cause).__name__}: {cause}); restore the file") from cause
    if number != FORMAT:
        raise StoreError(
            f"run folder {run} has format {number}, but this version of Turnwise reads format {FORMAT}; use the "
            "version that made it, or train again"
        )


def write_json_atomic(path: Path, value: Any) -> None:
    """Replace `path` by `value` as indented JSON, or leave it as it was. Raises StoreError."""
    write_bytes_atomic(path, json.dumps(value, indent=1).encode())


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data` or leave it as it was; makes missing folders.

    Raises StoreError naming path, cause and remedy.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        sync(path.parent)
    except OSError as cause:
        raise disk_error("write", path, cause) from cause


def append_line(path: Path, row: Mapping[str, Any]) -> None:
    """Append `row` as one JSON line (see `append_lines`)."""
    append_lines(path, (row,))


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append one JSON line per row and wait for the disk.

    An unfinished last line, left by a crash, is cut off first.

    Raises StoreError when the disk refuses; then none of the rows is kept.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            end = end_of_lines(path, handle)
            try:
                os.ftruncate(handle, end)
                _write_all(handle, b"".join(to_line(row) for row in rows), end)
                os.fsync(handle)
            except BaseException:
                os.ftruncate(handle, end)
                raise
        finally:
            os.close(handle)
    except OSError as cause:
        raise disk_error("append to", path, cause) from cause


def sync(path: Path) -> None:
    """Wait until a file's data, or a folder's list of names, is on disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_error(verb: str, path: Path, cause: OSError) -> StoreError:
    """Build the StoreError for an operation that the disk refused."""
    return StoreError(
        f"cannot {verb} {path}: {cause.strerror or cause}; free disk space or change run.output, then continue with "
        "--resume"
    )


def to_line(row: Mapping[str, Any]) -> bytes:
    """The row as a line of JSON."""
    return json.dumps(row).encode() + b"\n"


def _write_all(handle: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written


def end_of_lines(path: Path, handle: int) -> int:
    """Return where the next line starts: the end of the file, or of its last finished line if a crash cut the next one
    off."""
    size = os.fstat(handle).st_size
    if size == 0 or os.pread(handle, 1, size - 1) == b"\n":
        return size
    return path.read_bytes().rfind(b"\n") + 1


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the finished lines of a file; none if it does not exist.

    A last line without a line break was never finished and is left out.

    Raises StoreError naming file and line for anything but a JSON object.
    """
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as cause:
        raise StoreError(f"cannot read {path}: {cause.strerror or cause}; check its permissions") from cause
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError as cause:
            raise StoreError(f"{path}, line {number} is not JSON ({cause}); remove the line") from cause
        if not isinstance(row, dict):
            raise StoreError(f"{path}, line {number} is {type(row).__name__}, not a JSON object; remove the line")
        yield row


def _remove(file: Path) -> None:
    try:
        file.unlink()
    except OSError as cause:
        raise disk_error("remove", file, cause) from cause
