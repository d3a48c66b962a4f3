"""Commands from installed packages: entry points of the group `turnwise.commands`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from typing import Any

import typer

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.offers import Offer, find_offer, import_object, list_offers

GROUP = "turnwise.commands"
"""An entry point is a function, which becomes a command, or a `typer.Typer`, which becomes one with commands of its
own."""
KEY = "command"
"""What a name is called in errors."""


def list_commands(taken: Collection[str]) -> list[str]:
    """Names of the commands that packages add. Those that are taken are left out."""
    return [name for name in dict.fromkeys(offer.name for offer in list_offers(GROUP)) if name not in taken]


def find_command(name: str) -> Any:
    """The command of that name, None if no package has one. One that cannot be loaded says so when it is called."""
    try:
        offer = find_offer(GROUP, name, key=KEY, takes_path=False)
        if offer is None:
            return None
        loaded = _read(offer)
        with boundary(ConfigError, f"{KEY}={name!r} of the package {offer.package} cannot be made a command"):
            return _build(name, loaded)
    except ConfigError as cause:
        return _build(name, _refuse(cause), ignore_unknown_options=True, allow_extra_args=True)


def warn_of_taken(name: str) -> None:
    """Say which package has a command that Turnwise's own of the same name hides."""
    owners = [offer.package for offer in list_offers(GROUP) if offer.name == name]
    if owners:
        print(
            f"the command {name!r} from {' and '.join(owners)} is hidden by Turnwise's own; rename it", file=sys.stderr
        )


def _read(offer: Offer) -> Any:
    """The object of an offer. Raises ConfigError when it is none that makes a command."""
    loaded = import_object(KEY, offer.name, offer)
    if isinstance(loaded, typer.Typer) or inspect.isfunction(loaded):
        return loaded
    raise ConfigError(
        f"{KEY}={offer.name!r} from the package {offer.package} is a {type(loaded).__name__}; it must be a function or "
        "a typer.Typer"
    )


def _build(name: str, loaded: Any, **settings: bool) -> Any:
    if isinstance(loaded, typer.Typer):
        command: Any = typer.main.get_group(loaded)  # of one command too, which `get_command` would put in its place
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
