"""Formats of tasks that are folders, from installed packages: entry points of the group `turnwise.task_formats`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.errors import ConfigError
from turnwise.core.offers import describe_offers, find_offer, import_object
from turnwise.exchange.task_rows import LAYOUTS, Layout, TaskRow

GROUP = "turnwise.task_formats"
"""An entry point is a `FolderFormat`; its name is that of `turnwise data convert --from` and `--to`."""
KEY = "format"
"""What a name is called in errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFormat:
    """A layout of tasks with a folder for each; both directions raise DataError for what is wrong."""

    read: Callable[[Path], Iterable[tuple[str, TaskRow]]]
    """Every task of a folder with its place."""
    write: Callable[[Path, int, TaskRow], object]
    """Write a task below a folder; the number, from 1, names it if it has no name."""


def find_format(name: str) -> Layout | FolderFormat:
    """The layout of rows or the format of folders with a name.

    Raises ConfigError for an unknown name, one of several packages, and an object that is no format."""
    offer = find_offer(GROUP, name, key=KEY, built_in=LAYOUTS, takes_path=False)
    if offer is None:
        if name in LAYOUTS:
            return LAYOUTS[name]
        raise ConfigError(f"format {name!r} is unknown; use one of {', '.join(LAYOUTS)}" + describe_offers(GROUP))
    found = import_object(KEY, name, offer)
    if not isinstance(found, FolderFormat):
        raise ConfigError(
            f"{KEY}={name!r} of the package {offer.package} is a {type(found).__name__}; name a FolderFormat"
        )
    return found
