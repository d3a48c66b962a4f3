"""Rows of a user's data file, JSONL or Parquet."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from turnwise.core.errors import ConfigError, DataError, boundary

T = TypeVar("T")
Row = dict[str, Any]


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """(line or row number from 1, row) of every row: Parquet where the name ends in `.parquet`, else JSONL.

    Blank lines are skipped. Raises DataError: no such file, not UTF-8, not one JSON object per line, not Parquet.
    ConfigError for Parquet without pyarrow.
    """
    return _read_parquet(path) if path.suffix == ".parquet" else _read_jsonl(path)


def load_rows(path: Path, convert: Callable[[Row], T]) -> list[tuple[int, T]]:
    """(line or row number, converted row) of every row.

    Raises DataError as `read_rows` does, for a file without rows, and with file and line for what `convert` refuses.
    """
    rows = []
    for number, row in read_rows(path):
        try:
            rows.append((number, convert(row)))
        except DataError as error:
            raise DataError(f"{path}:{number}: {error}") from None
    if not rows:
        raise DataError(f"{path}: no rows; expected one JSON object per line")
    return rows


def import_pyarrow(path: Path) -> Any:
    """The module `pyarrow`. Raises ConfigError naming the file that needs it and the remedy."""
    if find_spec("pyarrow") is None:
        raise ConfigError(
            f'{path}: Parquet needs pyarrow; install it with: pip install "turnwise[data]", or use a .jsonl file'
        )
    return importlib.import_module("pyarrow")


def _read_jsonl(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line.decode("utf-8"))
                except (ValueError, RecursionError) as error:  # ValueError: also a whole number too long to read
                    raise DataError(
                        f"{path}:{number}: not JSON in UTF-8 ({error}); expected one JSON object per line"
                    ) from None
                if not isinstance(row, dict):
                    raise DataError(
                        f"{path}:{number}: {type(row).__name__} instead of an object; expected one JSON object per line"
                    )
                yield number, row
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def _read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    import_pyarrow(path)
    with boundary(DataError, f"{path}: not a readable Parquet file"):
        rows = importlib.import_module("pyarrow.parquet").read_table(path).to_pylist()
    yield from enumerate(rows, start=1)
