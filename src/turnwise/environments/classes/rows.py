"""The rows that a plain class's `reset` is called with: from a file, from the recipe, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError, DataError, EnvironmentFault
from turnwise.core.protocols import Split
from turnwise.core.seeds import rng
from turnwise.environments.classes.contract import Contract, check_row, read_messages
from turnwise.environments.file_splits import FileSplits

Row = Mapping[str, Any]
HELDOUT_SHARE = 0.1
"""Share of the rows that are held out where there is no file of held-out rows; at least one row."""


def load_rows(path: Path, contract: Contract) -> list[Row]:
    """The rows of a JSONL file, in order.

    Raises DataError naming file and line: no such file, not UTF-8, no JSON object, or columns that `reset` does not
    take.
    """
    rows = []
    for number, value in _read_lines(path):
        try:
            rows.append(_check(value, contract))
        except (ConfigError, EnvironmentFault) as error:
            raise DataError(f"{path}:{number}: {error}") from None
    if not rows:
        raise DataError(f"{path}: no rows; expected one JSON object per line")
    return rows


def check_rows(rows: Sequence[Row], contract: Contract) -> list[Row]:
    """The rows of a recipe. Raises ConfigError naming the first that does not fit."""
    for index, row in enumerate(rows):
        try:
            _check(row, contract)
        except (ConfigError, EnvironmentFault) as error:
            raise ConfigError(f"rows[{index}]: {error}") from None
    if not rows:
        raise ConfigError("rows=[] has no row; give at least one, or leave it out")
    return list(rows)


def split_rows(rows: Sequence[Row], heldout: Sequence[Row] | None, contract: Contract, seed: int) -> FileSplits[Row]:
    """The rows by split. Without held-out rows a share of `rows` is held out.

    A single row serves both splits where `reset` takes a seed; raises ConfigError where it does not.
    """
    if heldout is None and len(rows) == 1:
        if not contract.takes_seed:
            raise ConfigError(
                f"there is one row and {contract.name}.reset takes no seed, so that training and held-out tasks would "
                "be the same; give more rows, heldout_path, or reset a parameter seed"
            )
        heldout = rows
    if heldout is None:
        order = rng(seed, "held out").sample(range(len(rows)), len(rows))
        num_heldout = max(1, int(len(rows) * HELDOUT_SHARE))
        heldout = [rows[index] for index in sorted(order[:num_heldout])]
        rows = [rows[index] for index in sorted(order[num_heldout:])]
    by_split: dict[Split, Sequence[Row]] = {"train": rows, "heldout": heldout}
    return FileSplits(by_split, seed)


def _check(row: object, contract: Contract) -> Row:
    if not isinstance(row, dict):
        raise ConfigError(f"{type(row).__name__} instead of an object; expected one JSON object per row")
    check_row(contract, {"seed": 0, **row} if contract.takes_seed else row)
    if row.get("prompt") is not None:
        read_messages(row["prompt"], None, contract.name)
    return row


def _read_lines(path: Path) -> Iterator[tuple[int, object]]:
    """(line number from 1, value) of every line that is not blank."""
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, json.loads(line.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}:{number}: not JSON in UTF-8 ({error}); expected one JSON object per line") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error
