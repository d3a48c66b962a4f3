"""Read recipes and overrides from a command line."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.core.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.config.run import RunConfig


def split_recipe(arguments: Sequence[str] | None) -> tuple[list[Path], list[str]]:
    """Split into recipe files and overrides; an override contains `=` and is not a file.

    `os.path.exists` accepts an override that is too long for a file name, where `Path.exists` of Python 3.11 raises.
    """
    items = arguments or []
    overrides = [item for item in items if "=" in item and not os.path.exists(item)]
    return [Path(item) for item in items if item not in overrides], overrides


def check_flags(arguments: Sequence[str]) -> None:
    """Raise ConfigError for a recipe option in another library's form, `--learning_rate 1e-6` or `--train.lr=1e-6`:
    here it must be an override."""
    from turnwise.config.options import list_options
    from turnwise.config.other_names import find_other_name
    from turnwise.config.run import RunConfig

    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if not flag.startswith("--"):
            continue
        name, other = flag.lstrip("-"), find_other_name(flag)
        if name not in list_options(RunConfig):
            if other is None and "." in name:
                raise ConfigError(
                    f"{flag} is not an option of this command; recipe options have no dashes, and need true or false "
                    "after the name: train.recompute_activations=false (`turnwise options WORD` finds a name)"
                )
            if other is None:
                continue
            if not other.option or other.note:
                raise ConfigError(f"{flag} is not an option of this command; {other.describe()}")
            name = other.option
        following = arguments[place + 1] if place + 1 < len(arguments) else ""
        given = value if equals else "VALUE" if not following or following.startswith("--") else following
        raise ConfigError(f"{flag} is not an option of this command; recipe options have no dashes: {name}={given}")


def read_source(arguments: Sequence[str]) -> RunConfig | str:
    """The recipe from files and overrides, or from the single name of an environment. Raises ConfigError as
    `load_config` does."""
    from turnwise.config.load import load_config
    from turnwise.config.shipped import is_recipe

    files, overrides = split_recipe(arguments)
    if len(files) != 1 or is_recipe(str(files[0])) or overrides:
        return load_config(files, overrides)
    return str(files[0])
