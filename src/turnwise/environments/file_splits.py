"""The rows of a user's files as splits of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar, get_args

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise.core.seeds import rng

Row = TypeVar("Row")


class FileSplits(Generic[Row]):
    """Rows by split and index: "train" starts over in a new order after each pass, "heldout" ends."""

    def __init__(self, rows: Mapping[Split, Sequence[Row]], seed: int) -> None:
        """At least one row per split; `seed` decides the orders."""
        self._rows = rows
        self._seed = seed
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def count(self, split: Split) -> int:
        """How many rows a split has."""
        return len(self._rows[split])

    def row(self, split: Split, index: int) -> Row:
        """The index-th row of a split, from 0. Raises IndexError past the end of "heldout"."""
        rows = self._rows[split]
        if split == "train":
            return rows[self._order(index // len(rows))[index % len(rows)]]
        if index >= len(rows):
            raise IndexError(f"task {index} of split 'heldout': the file has {len(rows)} rows")
        return rows[index]

    def _shuffle(self, epoch: int) -> Sequence[int]:
        num_rows = len(self._rows["train"])
        return rng(self._seed, "epoch", epoch).sample(range(num_rows), num_rows)


def load_splits(paths: Mapping[Split, str], load: Callable[[Path], Sequence[Row]], seed: int) -> FileSplits[Row]:
    """Load the file of each split. Raises ConfigError for a missing path, and what `load` raises."""
    splits: tuple[Split, ...] = get_args(Split)
    for split in splits:
        check_path(f"{split}_path", paths[split])
    return FileSplits({split: load(Path(paths[split])) for split in splits}, seed)


def check_path(name: str, path: str) -> None:
    """Raise ConfigError when the path that mode "files" needs is empty."""
    if not path:
        raise ConfigError(f"{name}={path!r} but mode='files' needs it; give the path of a file")
