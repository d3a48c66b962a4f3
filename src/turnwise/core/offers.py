"""Rows beyond the tables of built-in ones: objects at import paths, and names that installed packages offer.

A package offers a name in an entry-point group, such as `turnwise.losses`:

    [project.entry-points."turnwise.losses"]
    soft_clip = "my_package.losses:SOFT_CLIP"

Each group is named where its objects are used: `turnwise.environments`, `turnwise.losses`, `turnwise.credit`,
`turnwise.annotators`, `turnwise.engines`, `turnwise.judges`, `turnwise.rewards`, `turnwise.samplers`,
`turnwise.commands`, `turnwise.report_sections`, `turnwise.task_formats`, `turnwise.recipes`, `turnwise.programs`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import Distribution, entry_points
from operator import attrgetter
from types import ModuleType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.packages import describe_home

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A name that an installed package offers."""

    name: str
    path: str
    """Import path "package.module:NAME"."""
    package: str
    made_for: str = ""
    """The versions of Turnwise that the package requires, such as "turnwise>=0.2"; empty if it does not say."""


def list_offers(group: str) -> tuple[Offer, ...]:
    """What installed packages offer in an entry-point group, by name. Imports none of it."""
    return _scan(group, tuple((folder, _find_change(folder)) for folder in sys.path))


def _find_change(folder: str) -> int:
    """When a package was last put into a folder or taken out, in ns; 0 where that is not known."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


@cache
def _scan(group: str, path: tuple[tuple[str, int], ...]) -> tuple[Offer, ...]:
    """The offers of the packages in `path`, which is `sys.path` with the last change of each folder: the two decide
    what is installed."""
    offers = {
        Offer(
            name=entry.name,
            path=entry.value,
            package="an unknown package" if entry.dist is None else entry.dist.name,
            made_for="" if entry.dist is None else _find_requirement(entry.dist),
        )
        for entry in entry_points(group=group)
    }
    return tuple(sorted(offers, key=lambda offer: (offer.name, offer.package, offer.path)))


def _find_requirement(package: Distribution) -> str:
    """What a package requires of Turnwise, as its metadata says it; what only an extra requires does not count."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in package.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if requirement.name.lower() == "turnwise" and wanted:
            return text
    return ""


def find_offer(
    group: str, name: str, *, key: str, built_in: Collection[str] = (), takes_path: bool = True
) -> Offer | None:
    """What `key` = `name` means among the offers of a group; None where no package offers it.

    Raises ConfigError where several packages offer the name, or one offers a `built_in` name, or a package of Turnwise
    that is not installed has it. The remedy for the first two is an import path where `key` `takes_path`."""
    matches = [offer for offer in list_offers(group) if offer.name == name]
    if not matches:
        if name not in built_in and (home := describe_home(group, name)):
            raise ConfigError(f"{key}={name!r} {home}")
        return None
    owners = [*(["built in"] if name in built_in else []), *(offer.package for offer in matches)]
    if len(owners) > 1:
        remedy = "uninstall all packages but one"
        if takes_path:
            remedy = "use the import path of one: " + ", ".join(offer.path for offer in matches)
        raise ConfigError(f"{key}={name!r} is provided more than once ({' and '.join(owners)}); {remedy}")
    return matches[0]


def import_object(key: str, path: str, offer: Offer | None = None) -> Any:
    """Import the object at the path "package.module:NAME", or that of an offer called `path`.

    Raises ConfigError naming `key` if the offer's package was made for another version of Turnwise, with what importing
    raised, or if the module has no such name."""
    module_name, _, name = (path if offer is None else offer.path).partition(":")
    hint = "" if _is_found(module_name) else " (is its folder on PYTHONPATH?)"
    what = f"{key}={path!r} cannot be imported{hint}"
    if offer is not None:
        from turnwise import __version__

        made_for = f", made for {offer.made_for!r}" if offer.made_for else ""
        _check_version(f"{key}={path!r}", offer, __version__)
        what = (
            f"{key}={path!r} of the package {offer.package} ({offer.path}{made_for}) cannot be imported by Turnwise "
            f"{__version__}; update one of the two, or uninstall {offer.package}"
        )
    with boundary(ConfigError, what):
        try:
            module = importlib.import_module(module_name)
        except SystemExit as left:  # no Exception: it would end the command without a word
            raise ImportError(f"importing it exits the program (SystemExit: {left})") from left
    try:
        return attrgetter(name)(module)
    except AttributeError:
        source = "" if offer is None else f" of the package {offer.package}"
        raise ConfigError(
            f"{key}={path!r}{source}: {module_name} has no {name!r}; it has {_list_members(module)}"
        ) from None


def _check_version(what: str, offer: Offer, version: str) -> None:
    """Raise ConfigError if a package requires other versions of Turnwise than the installed one."""
    from packaging.requirements import Requirement

    # A development version of the right release is none that pip would have refused.
    if offer.made_for and not Requirement(offer.made_for).specifier.contains(version, prereleases=True):
        raise ConfigError(
            f"{what} of the package {offer.package} was made for {offer.made_for!r}, and this is Turnwise {version}; "
            f"update one of the two, or uninstall {offer.package}"
        )


def _is_found(module_name: str) -> bool:
    """Whether Python finds the package or module at the top of a path, whatever importing it does."""
    try:
        return importlib.util.find_spec(module_name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _list_members(module: ModuleType) -> str:
    """The public classes and functions of a module, those that it defines itself if there are any."""
    members = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    own = [name for name in members if getattr(getattr(module, name), "__module__", None) == module.__name__]
    return ", ".join((own or members)[:20]) or "no class and no function"


def import_function(key: str, path: str) -> Callable[..., Any]:
    """Import the function at "package.module:function". Raises ConfigError naming `key` if nothing is there or it is
    not a function."""
    value = import_object(key, path)
    if not callable(value):
        raise ConfigError(f"{key}={path!r} is a {type(value).__name__}; it must be a function")
    function: Callable[..., Any] = value
    return function


def load_row(
    key: str, name: str, kind: type[Row], *, group: str, built_in: Collection[str]
) -> Row | Callable[..., Any] | None:
    """Load what `key` = `name` refers to outside a table of built-in rows: a row or a function, at an import path or
    offered by an installed package; None for a name that is `built_in` or that nobody offers.

    Raises ConfigError in one line: two packages offer the name, the import fails, or the object is something else."""
    offer = None if ":" in name else find_offer(group, name, key=key, built_in=built_in)
    if offer is None and ":" not in name:
        return None
    value = import_object(key, name, offer)
    if isinstance(value, kind):
        check_choices(f"{key}={name!r}", value)
        return value
    if callable(value):
        function: Callable[..., Any] = value
        return function
    raise ConfigError(
        f"{key}={name!r} is a {type(value).__name__}; it must be a function or a row of class {kind.__name__}"
    )


def find_row(
    key: str,
    name: str,
    kind: type[Row],
    *,
    group: str,
    built_in: Mapping[str, Row],
    wrap: Callable[[Callable[..., Any]], Row],
) -> Row:
    """Return the row that `key` = `name` refers to: built in, offered by an installed package or at an import path. It
    has the name by which it was found; of a function, `wrap` makes a row.

    Raises ConfigError in one line as `load_row` does, and for a name that nobody offers."""
    loaded = load_row(key, name, kind, group=group, built_in=built_in)
    if isinstance(loaded, kind):
        return replace(loaded, name=name)  # type: ignore[type-var]
    if loaded is not None:
        return wrap(cast(Callable[..., Any], loaded))
    if name in built_in:
        return built_in[name]
    raise ConfigError(
        f"{key}={name!r} is neither one of {', '.join(built_in)}{describe_offers(group)} nor an import path"
    )


def check_choices(what: str, row: object) -> None:
    """Raise ConfigError if a field of a row with few choices (a `Literal`) has a value that is not one of them."""
    for name, hint in get_type_hints(type(row)).items():
        value = getattr(row, name, None)
        if get_origin(hint) is Literal and value not in get_args(hint):
            choices = ", ".join(map(repr, get_args(hint)))
            raise ConfigError(f"{what}: its {name} is {value!r}; it must be one of {choices}")


def describe_offers(group: str) -> str:
    """List the names that packages offer, for an error about an unknown one; empty if there are none."""
    names = sorted({offer.name for offer in list_offers(group)})
    return f"; offered by installed packages: {', '.join(names)}" if names else ""
