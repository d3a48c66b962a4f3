"""Serves the rows of a user's files as splits of tasks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from turnwise.core.errors import ConfigError
from turnwise.core.protocols import Split
from turnwise.core.seeds import rng
from turnwise.environments.canaries import refuse_canary
from turnwise.environments.data_rows import RowFile, load_file
from turnwise.pictures.rows import RowPictures, refuse_pictures

Row = TypeVar("Row")
Place = Callable[[int], str]
"""Returns file and line of a row."""
MAX_BAD_ROWS = 0.05
"""Default for the largest share of a file's rows that may be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file from which tasks come."""

    path: Path
    num_rows: int
    """Number of rows that are used."""
    pictures: str = ""
    """`RowPictures.hash_all` of the family; empty if its rows show none."""


class FileSplits(Generic[Row]):
    """Rows by split and index: "train" starts over in a new order after each pass, "heldout" ends."""

    def __init__(
        self,
        rows: Mapping[Split, Sequence[Row]],
        seed: int,
        *,
        places: Mapping[Split, Place] | None = None,
        notes: Sequence[str] = (),
        files: Sequence[DataFile] = (),
    ) -> None:
        """Each split needs at least one row; `seed` determines the orders. `places` say where a row comes from."""
        self._rows = rows
        self._seed = seed
        self._places = places
        self.notes = tuple(notes)
        """Notes on the rows for readers of the run; one line each."""
        self.files = tuple(files)
        """The files that contain the rows."""
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def count(self, split: Split) -> int:
        """Return how many rows a split has."""
        return len(self._rows[split])

    def row(self, split: Split, index: int) -> Row:
        """Return the index-th row of a split, from 0. Raises IndexError past the end of "heldout"."""
        return self._rows[split][self._find(split, index)]

    def place(self, split: Split, index: int) -> str | None:
        """Return file and line of that row; None if it does not come from a file."""
        return None if self._places is None else self._places[split](self._find(split, index))

    def _find(self, split: Split, index: int) -> int:
        num_rows = len(self._rows[split])
        if split == "train":
            return self._order(index // num_rows)[index % num_rows]
        if index >= num_rows:
            raise IndexError(f"task {index} of split 'heldout' does not exist: the file has {num_rows} rows")
        return index

    def _shuffle(self, epoch: int) -> Sequence[int]:
        num_rows = len(self._rows["train"])
        return rng(self._seed, "epoch", epoch).sample(range(num_rows), num_rows)


class FromFiles:
    """Attributes of families whose tasks may come from files; runs read them by name, so other families may offer them
    too.

    A subclass sets `_files`.
    """

    _files: FileSplits[Any] | None = None
    """The rows by split; None if tasks come from elsewhere."""
    _pictures: RowPictures = RowPictures()
    """The pictures of the rows; a family that shows some sets its own."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the rows for readers of the run; one line each."""
        return self._files.notes if self._files is not None else ()

    @property
    def data_files(self) -> tuple[DataFile, ...]:
        """The files on which tasks depend."""
        if self._files is None:
            return ()
        return tuple(replace(file, pictures=self._pictures.hash_all()) for file in self._files.files)

    def place(self, split: Split, index: int) -> str | None:
        """Return file and line of a task; None if it does not come from a file."""
        return self._files.place(split, index) if self._files is not None else None


def load_splits(
    paths: Mapping[Split, str],
    convert: Callable[[dict[str, Any]], Row],
    seed: int,
    *,
    max_bad_rows: float = MAX_BAD_ROWS,
    asks: Callable[[Row], object] = repr,
    prepare: Callable[[dict[str, Any], Path], dict[str, Any]] = refuse_pictures,
) -> FileSplits[Row]:
    """Load the file of each split. Rows with equal `asks` are copies of one another. `prepare` changes a row before it
    is converted; it gets the row and the folder of its file. The default refuses rows with pictures. A training row
    with a canary string counts as bad (`canaries`).

    Raises ConfigError for a missing path, and as `load_file` does if more than the share `max_bad_rows` is bad.
    """
    splits: tuple[Split, ...] = get_args(Split)
    for split in splits:
        check_path(f"{split}_path", paths[split])
    loaded = {split: _load(Path(paths[split]), split, convert, prepare, max_bad_rows) for split in splits}
    rows: dict[Split, Sequence[Row]] = {split: file.rows for split, file in loaded.items()}
    places: dict[Split, Place] = {split: file.place for split, file in loaded.items()}
    notes = [note for file in loaded.values() if (note := file.note) is not None]
    files = [DataFile(path=file.path, num_rows=len(file.rows)) for file in loaded.values()]
    return FileSplits(rows, seed, places=places, notes=[*notes, *describe_copies(rows, places, asks)], files=files)


def _load(
    path: Path,
    split: Split,
    convert: Callable[[dict[str, Any]], Row],
    prepare: Callable[[dict[str, Any], Path], dict[str, Any]],
    max_bad_rows: float,
) -> RowFile[Row]:
    def read(row: dict[str, Any]) -> Row:
        if split == "train":
            refuse_canary(row)
        return convert(prepare(row, path.parent))

    return load_file(path, read, max_bad_share=max_bad_rows)


def describe_copies(
    rows: Mapping[Split, Sequence[Row]], places: Mapping[Split, Place], asks: Callable[[Row], object] = repr
) -> list[str]:
    """Return one line for each split that contains a row twice, and one for held-out rows that are trained on, each
    with the first example."""
    notes = []
    seen: dict[Split, dict[bytes, int]] = {}
    for split, each in rows.items():
        keys = [_hash(asks(row)) for row in each]
        first = seen[split] = {}
        copies = [(index, first[key]) for index, key in enumerate(keys) if first.setdefault(key, index) != index]
        if copies:
            index, earlier = copies[0]
            notes.append(
                f"{len(copies):,} of the {len(each):,} rows of split {split!r} ask what an earlier row asks: "
                f"{places[split](index)} is {places[split](earlier)} again"
            )
    shared = [key for key in seen.get("heldout", {}) if key in seen.get("train", {})]
    if shared:
        held, trained = places["heldout"](seen["heldout"][shared[0]]), places["train"](seen["train"][shared[0]])
        notes.append(
            f"{len(shared):,} of the {len(seen['heldout']):,} held-out tasks are trained on too ({held} is {trained}): "
            "their score says nothing about new tasks"
        )
    return notes


def check_path(name: str, path: str) -> None:
    """Raise ConfigError if the path of a file that tasks are read from is empty."""
    if not path:
        raise ConfigError(f"{name}={path!r}, but tasks are read from it; set it to the path of a file")


def _hash(value: object) -> bytes:
    return hashlib.blake2b(repr(value).encode("utf-8", "replace"), digest_size=16).digest()
