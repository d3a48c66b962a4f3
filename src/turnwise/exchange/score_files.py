"""Read what other programs' evaluations scored: Inspect logs (`.eval`, `.json`), and rows of task, score and cluster
(`.jsonl`, `.csv`)."""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError

SUFFIXES = (".jsonl", ".csv", ".eval", ".json")
SCORE = "score"
"""The column of rows that is read unless another one is named."""
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Inspect's correct, partially correct, incorrect and no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One attempt at a task."""

    task: str
    sample: str
    """Tells attempts at a task apart; "" if the file does not number them."""
    score: float | None
    """In [0, 1]; None if the attempt could not be scored."""
    cluster: str | None
    kind: str | None
    place: str
    """File and line or sample, for messages."""


def read_score_rows(path: Path, name: str | None = None) -> list[ScoreRow]:
    """Read the rows of a file; `name` is the column, or the scorer of a log, that is the score (None: "score", or the
    only scorer).

    Raises DataError naming the file and the row: for a missing file or column, a score that is no number in [0, 1], an
    attempt that is there twice, a log of an evaluation that did not finish.
    """
    try:
        data = path.read_bytes()
    except OSError as cause:
        raise DataError(f"cannot read {path}: {cause.strerror}; name a run folder or a file of scores") from cause
    match path.suffix:
        case ".jsonl":
            rows = _read_table(_read_jsonl(path, data), name or SCORE)
        case ".csv":
            rows = _read_table(_read_csv(path, data), name or SCORE)
        case ".eval" | ".json":
            rows = _read_log(path, data, name)
        case other:
            raise DataError(f"{path} ends with {other!r}; name a run folder or a file that ends with {SUFFIXES}")
    if not rows:
        raise DataError(f"{path} has no row; name a file with at least one scored task")
    _check_attempts(rows)
    return rows


def _check_attempts(rows: Sequence[ScoreRow]) -> None:
    first: dict[str, ScoreRow] = {}
    seen: dict[tuple[str, str], ScoreRow] = {}
    for row in rows:
        earlier = seen.setdefault((row.task, row.sample), row)
        if earlier is not row:
            remedy = f"give sample {row.sample!r} another number" if row.sample else "number them in a column sample"
            raise DataError(
                f"{row.place}: task {row.task!r} was scored already ({earlier.place}); if both are attempts at it, "
                f"{remedy}, else remove one"
            )
        one = first.setdefault(row.task, row)
        for field in ("cluster", "kind"):
            if getattr(one, field) != getattr(row, field):
                raise DataError(
                    f"{row.place}: {field} of task {row.task!r} is {getattr(row, field)!r}, but "
                    f"{getattr(one, field)!r} in {one.place}; give all attempts at a task the same {field}"
                )
        if (row.cluster is None) != (rows[0].cluster is None):
            raise DataError(f"{row.place}: cluster is given for some tasks only; give it for all of them, or for none")


def _read_table(rows: Iterable[tuple[str, Mapping[str, Any]]], name: str) -> list[ScoreRow]:
    read = []
    for place, row in rows:
        for column in ("task", name):
            if column not in row:
                remedy = "" if column == "task" else "; name the column with --score"
                raise DataError(f"{place}: column {column!r} is missing, there are {', '.join(row)}{remedy}")
        read.append(
            ScoreRow(
                task=_read_name(row["task"], f"{place}: task") or _refuse(f"{place}: task is empty; name every task"),
                sample=_read_name(row.get("sample"), f"{place}: sample") or "",
                score=_read_score(row[name], f"{place}: {name}"),
                cluster=_read_name(row.get("cluster"), f"{place}: cluster"),
                kind=_read_name(row.get("kind"), f"{place}: kind"),
                place=place,
            )
        )
    return read


def _read_jsonl(path: Path, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        row = _parse(line, f"{path}, line {number}")
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number} is {type(row).__name__}, not a JSON object; remove the line")
        yield f"{path}, line {number}", row


def _read_csv(path: Path, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True, restkey="")
        for row in reader:
            if "" in row or None in row.values():
                raise DataError(f"{path}, line {reader.line_num} has another number of values than the header; mend it")
            yield f"{path}, line {reader.line_num}", row
    except (csv.Error, UnicodeDecodeError) as cause:
        raise DataError(f"cannot read {path} as CSV ({cause}); write it again as UTF-8") from cause


def _read_log(path: Path, data: bytes, name: str | None) -> list[ScoreRow]:
    header, samples = _open_log(path, data)
    status = header.get("status")
    if status != "success":
        raise DataError(
            f"{path} is the log of an evaluation with status {status!r}, interrupted after {len(samples)} samples; "
            "finish it (inspect eval-retry) and compare the finished log"
        )
    rows = []
    for number, sample in enumerate(samples, start=1):
        place = f"{path}, sample {sample.get('id')!r} epoch {sample.get('epoch')}"
        if "id" not in sample:
            raise DataError(f"{path}, sample {number} has no id; write the log again")
        metadata = sample.get("metadata") or {}
        rows.append(
            ScoreRow(
                task=str(sample["id"]),
                sample=str(sample.get("epoch", "")),
                score=_find_score(sample, name, place),
                cluster=_read_name(metadata.get("cluster"), f"{place}: cluster"),
                kind=_read_name(metadata.get("kind"), f"{place}: kind"),
                place=place,
            )
        )
    return rows


def _open_log(path: Path, data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the samples of a log, or their summaries."""
    if path.suffix == ".json":
        log = _parse(data, str(path))
        samples = log.get("samples") if isinstance(log, dict) else None
        if not isinstance(samples, list) or not all(isinstance(each, dict) for each in samples):
            raise DataError(
                f"{path} is no Inspect log with samples; write one with them, or name a .jsonl file of rows"
            )
        return log, samples
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = dict.fromkeys(archive.namelist())
            found = [name for name in names if name.startswith("samples/")]
            if "header.json" not in names:
                raise DataError(
                    f"{path} has no header.json: the evaluation was interrupted after {len(found)} samples; finish it "
                    "(inspect eval-retry) and compare the finished log"
                )
            header = _parse(archive.read("header.json"), f"{path}, header.json")
            if "summaries.json" in names:
                samples = _parse(archive.read("summaries.json"), f"{path}, summaries.json")
            else:
                samples = [_parse(archive.read(name), f"{path}, {name}") for name in found]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, OSError, EOFError) as cause:
        raise DataError(
            f"cannot read {path} ({cause}); write it again, as .json if need be (inspect log convert)"
        ) from cause
    if not isinstance(header, dict) or not all(isinstance(each, dict) for each in samples):
        raise DataError(f"{path} is no Inspect log; name a .jsonl file of rows")
    return header, samples


def _find_score(sample: Mapping[str, Any], name: str | None, place: str) -> float | None:
    """The named score of a sample, or its only one; None for a sample that failed or was not scored."""
    values: dict[str, Any] = {}
    for scorer, score in (sample.get("scores") or {}).items():
        value = score.get("value") if isinstance(score, dict) else score
        values |= (
            {f"{scorer}/{key}": each for key, each in value.items()} if isinstance(value, dict) else {scorer: value}
        )
    if sample.get("error") or not values:
        return None
    if name is None and len(values) > 1:
        raise DataError(f"{place} has several scores ({', '.join(values)}); choose one with --score")
    chosen = next(iter(values)) if name is None else name
    if chosen not in values:
        raise DataError(f"{place} has no score {chosen!r}; there are {', '.join(values)}")
    value = values[chosen]
    if isinstance(value, float) and math.isnan(value):  # how Inspect writes that a sample was not scored
        return None
    return _read_score(LETTERS.get(value, value) if isinstance(value, str) else value, f"{place}: {chosen}")


def _read_score(value: Any, place: str) -> float | None:
    """A score; None for null and for an empty cell."""
    if value is None or value == "":
        return None
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{place} {value!r} is no number; give one in [0, 1], or nothing if not scored") from None
    if not 0 <= score <= 1:
        raise DataError(
            f"{place} {value!r} is not in [0, 1]; divide by the best possible score, or leave it empty if not scored"
        )
    return score


def _read_name(value: Any, place: str) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{place} is {type(value).__name__}; give a text or a number")
    return str(value)


def _parse(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as cause:
        raise DataError(f"{place} is not JSON ({cause}); it was cut off or damaged: write it again") from cause


def _refuse(text: str) -> str:
    raise DataError(text)
