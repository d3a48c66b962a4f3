"""Rows of a user's data file: JSONL, one list of JSON objects, or Parquet.

Lines end only at a line feed: other characters that Unicode counts as line ends may occur inside a row.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from turnwise.core.errors import ConfigError, DataError, boundary

T = TypeVar("T")
Row = dict[str, Any]
ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet")
BATCH_ROWS = 4096
"""Rows of a Parquet file that are read at a time."""
NUM_NAMED = 3
"""Most bad rows named in a message; further ones are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile(Generic[T]):
    """The content of a file."""

    path: Path
    rows: Sequence[T]
    """The readable rows, in order."""
    numbers: Sequence[int]
    """The line number of each row (in Parquet and in a list its position), from 1."""
    num_left_out: int
    """Number of rows left out."""
    problems: Sequence[str]
    """What is wrong with the first left-out rows, with file and line."""

    def place(self, index: int) -> str:
        """Return file and line of a row."""
        return f"{self.path}:{self.numbers[index]}"

    @property
    def note(self) -> str | None:
        """Describe in one line which rows were left out; None if none was."""
        if not self.num_left_out:
            return None
        listed, total = _list_problems(self.problems, self.num_left_out), len(self.rows) + self.num_left_out
        return f"{self.num_left_out:,} of {total:,} rows are left out: {listed}"


def load_file(path: Path, convert: Callable[[Row], T], *, max_bad_share: float = 0.0) -> RowFile[T]:
    """Load and convert the rows of a file; rows that cannot be read, or that `convert` refuses with a DataError, are
    left out.

    Raises DataError if there is no such file, it has another suffix, it is not valid Parquet or has no rows, and,
    naming the first bad rows with file and line, if more than `max_bad_share` of all rows are bad. Raises ConfigError
    for Parquet without pyarrow.
    """
    rows: list[T] = []
    numbers: list[int] = []
    problems: list[str] = []
    num_bad = 0
    for number, row in _read(path):
        try:
            if isinstance(row, DataError):
                raise row
            rows.append(convert(row))
            numbers.append(number)
        except DataError as error:
            num_bad += 1
            if len(problems) < NUM_NAMED:
                problems.append(f"{path}:{number}: {error}")
            if not max_bad_share:
                raise DataError(problems[0]) from None
    total = len(rows) + num_bad
    if num_bad > max_bad_share * total:
        raise DataError(
            f"{_list_problems(problems, num_bad)} ({num_bad:,} of {total:,} rows are bad; "
            f"max_bad_rows={max_bad_share:g} is the share that may be left out)"
        )
    if not rows:
        raise DataError(f"{path}: no rows; expected one JSON object per line")
    return RowFile(path=path, rows=rows, numbers=numbers, num_left_out=num_bad, problems=problems)


def load_rows(path: Path, convert: Callable[[Row], T]) -> list[tuple[int, T]]:
    """Return (line or row number, converted row) of every row. Raises as `load_file` does, for the first bad row."""
    file = load_file(path, convert)
    return list(zip(file.numbers, file.rows, strict=True))


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield (line or row number from 1, row) of every row; blank lines are skipped. Raises as `load_file` does."""
    for number, row in _read(path):
        if isinstance(row, DataError):
            raise DataError(f"{path}:{number}: {row}")
        yield number, row


def check_plain(row: Mapping[str, Any]) -> None:
    """Raise DataError naming the first column whose value has no JSON form: a time, bytes, NaN."""
    for name, value in row.items():
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as cause:
            raise DataError(f"column {name!r} contains a value that JSON cannot represent ({cause})") from None


def import_pyarrow(path: Path) -> Any:
    """Return the module `pyarrow`. Raises ConfigError naming the file that needs it and the remedy."""
    if find_spec("pyarrow") is None:
        raise ConfigError(
            f'{path}: Parquet needs pyarrow; install it with: pip install "turnwise[data]", or use a .jsonl file'
        )
    return importlib.import_module("pyarrow")


def _list_problems(problems: Sequence[str], num_bad: int) -> str:
    return "; ".join(problems) + (f"; and {num_bad - len(problems):,} more" if num_bad > len(problems) else "")


def _read(path: Path) -> Iterator[tuple[int, Row | DataError]]:
    """Yield the rows with their numbers; for an unreadable row, its error instead. Raises DataError for the whole
    file."""
    if path.suffix not in ENDINGS:
        raise DataError(f"{path}: ends with {path.suffix!r}; use a {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file")
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
        return
    try:
        with path.open("rb") as file:
            if path.suffix == ".json" and (rows := _read_list(file.read())) is not None:
                yield from enumerate(map(_check_object, rows), start=1)
                return
            file.seek(0)
            for number, line in enumerate(file, start=1):
                # Windows starts files with a mark of three bytes.
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if line.strip():
                    yield number, _parse(line.rstrip(b"\r\n"))
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        cause = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read {path} ({cause}); check the path") from None


def _read_list(data: bytes) -> list[Any] | None:
    """Return the list that makes up the whole file; None if it is something else, such as one object per line."""
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_read_object)
    except DataError:
        raise
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _parse(line: bytes) -> Row | DataError:
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=_read_object)
    except DataError as error:
        return error
    except (ValueError, RecursionError) as error:
        cause = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        return DataError(f"not JSON in UTF-8 ({cause}); expected one JSON object per line")
    return _check_object(row)


def _read_object(pairs: list[tuple[str, Any]]) -> Row:
    """Build a JSON object, refusing a name that occurs twice: Python would keep the last value and drop the others."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{twice!r} appears twice in one object; keep one of them")
    return row


def _check_object(row: object) -> Row | DataError:
    """Return the row, or an error if it is not an object or contains an unpaired surrogate, which no tokenizer or file
    can hold."""
    if not isinstance(row, dict):
        return DataError(f"{type(row).__name__} instead of an object; expected one JSON object per line")
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except RecursionError:
        return DataError("nested too deeply")
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        near = error.object[max(0, error.start - 20) : error.start]
        return DataError(f"half of a surrogate pair ({half!a} after {near!a}); write the whole character")
    return row


def _read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the rows, reading part of the file at a time: as Python objects, a large file would fill the memory
    twice."""
    import_pyarrow(path)
    before = 0
    with boundary(DataError, f"{path}: not a readable Parquet file"):
        file = importlib.import_module("pyarrow.parquet").ParquetFile(path)
        batches = file.iter_batches(batch_size=BATCH_ROWS)
        # A map with text keys is an object; one with other keys, which JSON lacks, stays a list of pairs.
        has_odd_keys = re.search(r"\bmap<(?!(?:large_)?string\b)", str(file.schema_arrow)) is not None
    while True:
        with boundary(DataError, f"{path}: not a readable Parquet file"):
            batch = next(batches, None)
            rows = [] if batch is None else batch.to_pylist(maps_as_pydicts=None if has_odd_keys else "strict")
        if batch is None:
            return
        yield from enumerate(rows, start=before + 1)
        before += len(rows)
