"""Write rows as JSONL or Parquet, atomically."""

from __future__ import annotations

import importlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError, StoreError, boundary
from turnwise.environments.data_rows import check_plain, import_pyarrow
from turnwise.store.run_folder import write_bytes_atomic


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], *, places: Sequence[str] = ()) -> None:
    """Replace the `.jsonl` or `.parquet` file by the rows. `places` holds the file and line of origin of each row.

    Raises DataError for another suffix, a disk that refuses, a value that JSON has no form for, and rows that Parquet
    would change: its columns have one type each. ConfigError for Parquet without pyarrow.
    """
    if path.suffix == ".jsonl":
        names = places or [f"row {number}" for number in range(1, len(rows) + 1)]
        data = b"".join(_to_line(row, name) for row, name in zip(rows, names, strict=True))
    elif path.suffix == ".parquet":
        data = _to_parquet(path, rows)
    else:
        raise DataError(f"{path}: ends with {path.suffix!r}; name a .jsonl or .parquet file")
    try:
        write_bytes_atomic(path, data)
    except StoreError as cause:
        raise DataError(f"cannot write {path}: {cause.__cause__ or cause}") from cause


def _to_line(row: Mapping[str, Any], place: str) -> bytes:
    try:
        return _encode(row) + b"\n"
    except (TypeError, ValueError, RecursionError):
        try:
            check_plain(row)
        except DataError as cause:
            raise DataError(
                f"{place}: {cause}; leave the column out with --drop COLUMN, or write a .parquet file"
            ) from None
        raise


def _encode(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape
        return json.dumps(value, allow_nan=False).encode()


def _to_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> bytes:
    arrow = import_pyarrow(path)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
            raise DataError(
                f"{path}: column {name!r} contains an integer of more than 64 bits; write a .jsonl file instead"
            )
        with boundary(DataError, f"{path}: column {name!r} has values of several types; write a .jsonl file instead"):
            columns[name] = arrow.array(values)
        if not _is_same(columns[name].to_pylist(), values):
            raise DataError(
                f"{path}: the values of column {name!r} have several layouts or types, and Parquet would change some "
                "of them or add fields that some lack; write a .jsonl file instead"
            )
    buffer = io.BytesIO()
    with boundary(DataError, f"{path}: Parquet cannot hold these rows; write a .jsonl file instead"):
        importlib.import_module("pyarrow.parquet").write_table(arrow.table(columns), buffer)
    return buffer.getvalue()


def _is_same(read: object, written: object) -> bool:
    """Whether a value came back unchanged: here 1 differs from 1.0, and NaN equals NaN."""
    if isinstance(read, dict) and isinstance(written, dict):
        return read.keys() == written.keys() and all(_is_same(read[key], written[key]) for key in read)
    if isinstance(read, list) and isinstance(written, list | tuple):
        return len(read) == len(written) and all(map(_is_same, read, written))
    if isinstance(read, float) and isinstance(written, float) and math.isnan(read):
        return math.isnan(written)
    return type(read) is type(written) and read == written
