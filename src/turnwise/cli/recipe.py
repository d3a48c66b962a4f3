"""What a command line says of a recipe."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnwise.config.run import RunConfig


def split_recipe(arguments: Sequence[str] | None) -> tuple[list[Path], list[str]]:
    """Split into recipe files and overrides; an override contains `=` and is not a file.

    `os.path.exists` takes an override that is too long for a file's name, which `Path.exists` of Python 3.11 refuses.
    """
    items = arguments or []
    overrides = [item for item in items if "=" in item and not os.path.exists(item)]
    return [Path(item) for item in items if item not in overrides], overrides


def read_source(arguments: Sequence[str]) -> RunConfig | str:
    """The recipe of some files and overrides, or the one name of an environment. Raises ConfigError as `load_config`
    does."""
    from turnwise.config.load import load_config

    files, overrides = split_recipe(arguments)
    is_recipe = len(files) != 1 or files[0].suffix == ".toml" or overrides
    return load_config(files, overrides) if is_recipe else str(files[0])
