"""Write rows as JSONL or Parquet, atomically."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import DataError, StoreError, boundary
from turnwise.environments.data_rows import import_pyarrow
from turnwise.store.run_folder import write_bytes_atomic


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the `.jsonl` or `.parquet` file by the rows.

    Raises DataError for another ending, a disk that refuses, and rows that Parquet would change: its columns have one
    type each. ConfigError for Parquet without pyarrow.
    """
    if path.suffix == ".jsonl":
        data = b"".join(_to_line(row) for row in rows)
    elif path.suffix == ".parquet":
        data = _to_parquet(path, rows)
    else:
        raise DataError(f"{path}: ends with {path.suffix!r}; name a .jsonl or .parquet file")
    try:
        write_bytes_atomic(path, data)
    except StoreError as cause:
        raise DataError(f"cannot write {path}: {cause.__cause__ or cause}") from cause


def _to_line(row: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can escape
        return json.dumps(row).encode() + b"\n"


def _to_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> bytes:
    arrow = import_pyarrow(path)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        with boundary(DataError, f"{path}: column {name!r} has values of several types; write a .jsonl file instead"):
            columns[name] = arrow.array(values)
        if columns[name].to_pylist() != values:
            raise DataError(
                f"{path}: the values of column {name!r} have several layouts, and Parquet would fill in the fields "
                "that some lack; write a .jsonl file instead"
            )
    buffer = io.BytesIO()
    with boundary(DataError, f"{path}: Parquet cannot hold these rows; write a .jsonl file instead"):
        importlib.import_module("pyarrow.parquet").write_table(arrow.table(columns), buffer)
    return buffer.getvalue()
