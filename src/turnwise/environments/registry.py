"""Finds environments by name: built-in ones, those of installed packages, or by import path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.offers import describe_offers, find_offer, import_object, list_offers
from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.classes.contract import is_plain_class
from turnwise.environments.classes.family import ClassFamily

FAMILIES = {
    "agent": "turnwise.environments.agents.family:AgentTasks",
    "countdown": "turnwise.environments.countdown.family:Countdown",
    "labels": "turnwise.environments.labels.family:Labels",
    "math_code": "turnwise.environments.math_code.family:MathCode",
    "mcp": "turnwise.environments.mcp.family:McpTasks",
    "search_qa": "turnwise.environments.search_qa.family:SearchQA",
}
"""Built-in families by name."""
GROUP = "turnwise.environments"
"""Entry-point group in which an installed package names its environments: `name = "package.module:Class"`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An environment with a short name."""

    name: str
    path: str
    """Import path "package.module:Class"."""
    source: str
    """"built in", or the installed package that offers it; a name of several sources is refused where it is used."""


def list_environments() -> list[Named]:
    """List every environment with a short name, built-in ones first, without importing any."""
    named = [Named(name=name, path=path, source="built in") for name, path in FAMILIES.items()]
    return named + [Named(name=each.name, path=each.path, source=each.package) for each in list_offers(GROUP)]


def find_class(name: str, *, key: str = "environment") -> Any:
    """What a short name or the import path "package.module:Class" names.

    Raises ConfigError when several packages offer the name, when it is no name and no path, or cannot be imported.
    """
    option = f"{key}.name"
    if ":" in name:
        return import_object(option, name)
    offer = find_offer(GROUP, name, key=option, built_in=FAMILIES)
    if offer is not None:
        return import_object(option, name, offer)
    if name in FAMILIES:
        return import_object(option, FAMILIES[name])
    raise ConfigError(
        f"{option}={name!r} is neither a known name ({', '.join(FAMILIES)}) nor a path 'package.module:Class'"
        + describe_offers(GROUP)
    )


def load_family(name: str, arguments: Mapping[str, Any], *, key: str = "environment") -> EnvironmentFamily:
    """Load the family of a short name or of the import path "package.module:Class", called with `arguments`.

    A plain class with `reset` and tools becomes a family. `key` is the recipe's option that names it, for messages.
    Raises ConfigError if the name leads nowhere, the arguments are refused, or the object is not an
    `EnvironmentFamily`.
    """
    family_class = find_class(name, key=key)
    if not callable(family_class):
        raise ConfigError(
            f"{key}.name={name!r} is an object of class {type(family_class).__name__}; name the class itself, which is "
            "built for every episode"
        )
    with boundary(ConfigError, f"{key}.args of {name!r}"):
        if is_plain_class(family_class):
            return ClassFamily(family_class, **arguments)
        family = family_class(**arguments)
    if not isinstance(family, EnvironmentFamily):
        raise ConfigError(
            f"{key}.name={name!r} lacks one of task, build_environment, policy, texts (see EnvironmentFamily), and is "
            "not a class with a reset method and tools either"
        )
    return family
