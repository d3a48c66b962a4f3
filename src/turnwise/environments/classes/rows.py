"""The rows passed to a plain class's `reset`: from a file, from the recipe, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import ConfigError, DataError, EnvironmentFault
from turnwise.core.protocols import Split
from turnwise.core.seeds import rng
from turnwise.environments.canaries import refuse_canary
from turnwise.environments.classes.contract import Contract, check_row, read_messages
from turnwise.environments.data_rows import RowFile, check_plain, load_file
from turnwise.environments.file_splits import DataFile, FileSplits, Place, describe_copies
from turnwise.pictures.rows import RowPictures, from_plain, to_plain

Row = Mapping[str, Any]
PROMPT = "prompt"
"""The column with an episode's first messages."""
HELDOUT_SHARE = 0.1
"""Share of the rows that are held out if there is no file of held-out rows; at least one row."""


def load_rows(
    path: Path, contract: Contract, pictures: RowPictures, *, max_bad_share: float, trains: bool = True
) -> RowFile[Row]:
    """Load the rows of a file, in order, their pictures by digest; rows that `reset` does not accept count as bad, and
    if they are trained on (`trains`) so do those with a canary string. Raises as `load_file` does."""

    def check(row: dict[str, Any]) -> Row:
        if trains:
            refuse_canary(row)
        row = to_plain(pictures.take(row, (PROMPT,), path.parent), PROMPT)
        check_plain(row)
        try:
            return _check(row, contract)
        except (ConfigError, EnvironmentFault) as error:
            raise DataError(str(error)) from None

    return load_file(path, check, max_bad_share=max_bad_share)


def check_rows(rows: Sequence[Row], contract: Contract, pictures: RowPictures) -> list[Row]:
    """Return the rows of a recipe, their pictures by digest. Raises ConfigError naming the first that does not fit."""
    checked = []
    for index, row in enumerate(rows):
        try:
            if isinstance(row, dict):
                row = to_plain(pictures.take(row, (PROMPT,), None), PROMPT)
            checked.append(_check(row, contract))
        except (ConfigError, DataError, EnvironmentFault) as error:
            raise ConfigError(f"rows[{index}]: {error}") from None
    if not rows:
        raise ConfigError("rows=[] is empty; add at least one row, or leave rows out")
    return checked


def split_rows(
    rows: Sequence[Row] | RowFile[Row], heldout: RowFile[Row] | None, contract: Contract, seed: int
) -> FileSplits[Row]:
    """Return the rows by split. Without held-out rows a share of `rows` is held out.

    A single row serves both splits if `reset` takes a seed; otherwise this raises ConfigError.
    """
    files = [file for file in (rows, heldout) if isinstance(file, RowFile)]
    train, place = (rows.rows, rows.place) if isinstance(rows, RowFile) else (rows, "rows[{}]".format)
    if heldout is None and len(train) == 1 and not contract.takes_seed:
        raise ConfigError(
            f"there is one row and {contract.name}.reset takes no seed, so training and held-out tasks would be the "
            "same; add rows or heldout_path, or add a parameter seed to reset"
        )
    by_split: dict[Split, Sequence[Row]]
    places: dict[Split, Place]
    if heldout is not None:
        by_split, places = {"train": train, "heldout": heldout.rows}, {"train": place, "heldout": heldout.place}
    elif len(train) == 1:
        by_split, places = {"train": train, "heldout": train}, {"train": place, "heldout": place}
    else:
        order = rng(seed, "held out").sample(range(len(train)), len(train))
        num_heldout = max(1, int(len(train) * HELDOUT_SHARE))
        chosen = {"train": sorted(order[num_heldout:]), "heldout": sorted(order[:num_heldout])}
        by_split = {"train": [train[at] for at in chosen["train"]], "heldout": [train[at] for at in chosen["heldout"]]}
        places = {
            "train": lambda index: place(chosen["train"][index]),
            "heldout": lambda index: place(chosen["heldout"][index]),
        }
    notes = [note for file in files if (note := file.note) is not None]
    if by_split["train"] is not by_split["heldout"]:
        notes += describe_copies(by_split, places)
    data_files = [DataFile(path=file.path, num_rows=len(file.rows)) for file in files]
    return FileSplits(by_split, seed, places=places, notes=notes, files=data_files)


def _check(row: object, contract: Contract) -> Row:
    if not isinstance(row, dict):
        raise ConfigError(f"{type(row).__name__} instead of an object; expected one JSON object per row")
    check_row(contract, {"seed": 0, **row} if contract.takes_seed else row)
    if row.get(PROMPT) is not None:
        read_messages(from_plain(row, PROMPT, lambda part: part)[PROMPT], None, contract.name)
    return row
