"""Commands from installed packages: entry points of the group `turnwise.commands`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from typing import Any

import typer

from turnwise.core.errors import ConfigError
from turnwise.core.extensions import Extension, list_extensions

GROUP = "turnwise.commands"
"""An entry point is a function, which becomes a command, or a `typer.Typer`, which becomes a command with
subcommands."""


def list_commands(taken: Collection[str]) -> list[str]:
    """Names of the commands that packages add. Names that are taken are left out."""
    return [extension.name for extension in list_extensions(GROUP) if extension.name not in taken]


def find_command(name: str) -> Any:
    """The command with that name; None if no package has one. A command that cannot be loaded raises the reason when it
    is called."""
    extension = next((each for each in list_extensions(GROUP) if each.name == name), None)
    if extension is None:
        return None
    try:
        return _build(name, _read(extension))
    except ConfigError as cause:
        return _build(name, _refuse(cause), ignore_unknown_options=True, allow_extra_args=True)


def warn_of_taken(name: str) -> None:
    """Warn which package has a command that is hidden by Turnwise's own command of the same name."""
    owners = next((each.owners for each in list_extensions(GROUP) if each.name == name), ())
    if owners:
        print(f"the command {name!r} of {' and '.join(owners)} is hidden by Turnwise's own; rename it", file=sys.stderr)


def _read(extension: Extension) -> Any:
    """The object of an entry point. Raises ConfigError if it cannot become a command."""
    loaded = extension.load()
    if isinstance(loaded, typer.Typer) or inspect.isfunction(loaded):
        return loaded
    raise ConfigError(
        f"{extension.paths[0]}, the command {extension.name!r} of package {extension.owners[0]}, is a "
        f"{type(loaded).__name__}; name a function or a typer.Typer"
    )


def _build(name: str, loaded: Any, **settings: bool) -> Any:
    if isinstance(loaded, typer.Typer):
        app = loaded
    else:
        app = typer.Typer(add_completion=False)
        app.command(name=name, context_settings=settings)(loaded)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _refuse(cause: ConfigError) -> Callable[[typer.Context], None]:
    """A command that raises the error that kept the real one from being loaded, whatever its arguments."""

    def refused(ctx: typer.Context) -> None:
        raise cause

    refused.__doc__ = f"Cannot be loaded: {cause}"
    return refused
