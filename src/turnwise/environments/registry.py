"""Finds environments by name: built-in ones, those of installed packages, or by import path."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.extensions import list_extensions
from turnwise.core.protocols import EnvironmentFamily
from turnwise.environments.classes.contract import is_plain_class
from turnwise.environments.classes.family import ClassFamily

FAMILIES = {
    "coding": "turnwise.environments.coding.family:Coding",
    "countdown": "turnwise.environments.countdown.family:Countdown",
    "debate": "turnwise.environments.debate.family:Debate",
    "delegate": "turnwise.environments.delegate.family:Delegate",
    "games": "turnwise.environments.games.family:Games",
    "gymnasium": "turnwise.environments.adapters.gymnasium:Gymnasium",
    "math_code": "turnwise.environments.math_code.family:MathCode",
    "mcp": "turnwise.environments.mcp.family:McpTasks",
    "memory": "turnwise.environments.memory.family:build_family",
    "minigrid": "turnwise.environments.adapters.minigrid:MiniGrid",
    "open_spiel": "turnwise.environments.adapters.open_spiel:OpenSpiel",
    "openenv": "turnwise.environments.adapters.openenv:OpenEnv",
    "pettingzoo": "turnwise.environments.adapters.pettingzoo:PettingZoo",
    "plan": "turnwise.environments.plan.family:Plan",
    "program_proposer": "turnwise.environments.proposer.program_family:ProgramProposer",
    "reasoning_gym": "turnwise.environments.adapters.reasoning_gym:ReasoningGym",
    "relay": "turnwise.environments.relay.family:Relay",
    "repair": "turnwise.environments.repair.family:Repair",
    "retry": "turnwise.environments.retry.family:Retry",
    "revise": "turnwise.environments.revise.family:Revise",
    "search_proposer": "turnwise.environments.proposer.family:SearchProposer",
    "search_qa": "turnwise.environments.search_qa.family:SearchQA",
    "swe": "turnwise.environments.swe.family:Swe",
    "textworld": "turnwise.environments.adapters.textworld:TextWorld",
    "tool_calls": "turnwise.environments.tool_calls.family:ToolCalls",
    "verifiers": "turnwise.environments.adapters.verifiers:Verifiers",
    "verl_tool": "turnwise.environments.verl_tool.family:VerlToolTasks",
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
    """"built in", or the installed packages that define the name; several packages clash."""


def list_environments() -> list[Named]:
    """List every environment with a short name, built-in ones first, without importing any."""
    named = [Named(name=name, path=path, source="built in") for name, path in FAMILIES.items()]
    named += [
        Named(name=each.name, path=" or ".join(each.paths), source=" and ".join(each.owners))
        for each in list_extensions(GROUP)
    ]
    return named


def find_path(name: str, *, key: str = "environment") -> str:
    """Return the import path of a short name; any other name is returned unchanged.

    Raises ConfigError if several packages define the name, or if it is neither a name nor a path.
    """
    named = list_environments() if ":" not in name else []
    matches = [each for each in named if each.name == name]
    if len(matches) > 1 or any(" and " in each.source for each in matches):
        owners = " and ".join(each.source for each in matches)
        raise ConfigError(
            f"{key}.name={name!r} is the name of several environments ({owners}); use the import path of one: "
            + ", ".join(each.path for each in matches)
        )
    if matches:
        return matches[0].path
    if ":" not in name:
        known = ", ".join(each.name for each in named)
        raise ConfigError(f"{key}.name={name!r} is neither a known name ({known}) nor a path 'package.module:Class'")
    return name


def load_family(name: str, arguments: Mapping[str, Any], *, key: str = "environment") -> EnvironmentFamily:
    """Load the family of a short name or of the import path "package.module:Class", called with `arguments`.

    A plain class with `reset` and tools becomes a family. `key` is the recipe's option that names it, for messages.
    Raises ConfigError if the name leads nowhere, the arguments are refused, or the object is not an
    `EnvironmentFamily`.
    """
    module_name, _, class_name = find_path(name, key=key).partition(":")
    with boundary(ConfigError, f"{key}.name={name!r} cannot be imported (is its folder on PYTHONPATH?)"):
        module = importlib.import_module(module_name)
    family_class = getattr(module, class_name, None)
    if not callable(family_class):
        raise ConfigError(f"{key}.name={name!r}: {_describe_missing(module, class_name)}")
    with boundary(ConfigError, f"{key}.args of {name!r}"):
        if is_plain_class(family_class):
            return ClassFamily(family_class, **arguments)
        family = family_class(**arguments)
    if not isinstance(family, EnvironmentFamily):
        raise ConfigError(
            f"{key}.name={name!r} lacks one of task, build_environment, policy, texts (see EnvironmentFamily), and is "
            "no class with a method reset and tools either"
        )
    return family


def _describe_missing(module: ModuleType, name: str) -> str:
    """Why a module's attribute is no environment: it is an object of a class, or not there."""
    thing = getattr(module, name, None)
    if thing is not None:
        return f"{name} is an object of the class {type(thing).__name__}; name the class, which every episode builds"
    classes = [each for each, value in vars(module).items() if isinstance(value, type) and each[0] != "_"]
    own = [each for each in classes if getattr(module, each).__module__ == module.__name__]
    return f"{module.__name__} has no {name!r} at its top level; its classes are {', '.join(own or classes) or 'none'}"
