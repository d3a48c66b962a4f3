"""Environment families by name or import path."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import ConfigError, boundary
from turnwise.core.protocols import EnvironmentFamily

FAMILIES = {
    "gymnasium": "turnwise.environments.adapters.gymnasium:Gymnasium",
    "math_code": "turnwise.environments.math_code.family:MathCode",
    "minigrid": "turnwise.environments.adapters.minigrid:MiniGrid",
    "open_spiel": "turnwise.environments.adapters.open_spiel:OpenSpiel",
    "openenv": "turnwise.environments.adapters.openenv:OpenEnv",
    "pettingzoo": "turnwise.environments.adapters.pettingzoo:PettingZoo",
    "reasoning_gym": "turnwise.environments.adapters.reasoning_gym:ReasoningGym",
    "search_qa": "turnwise.environments.search_qa.family:SearchQA",
    "textworld": "turnwise.environments.adapters.textworld:TextWorld",
    "tool_calls": "turnwise.environments.tool_calls.family:ToolCalls",
    "verifiers": "turnwise.environments.adapters.verifiers:Verifiers",
}
"""Built-in families by name."""


def load_family(name: str, arguments: Mapping[str, Any], *, key: str = "environment") -> EnvironmentFamily:
    """The family of a built-in name or of the import path "package.module:Class", called with `arguments`.

    `key` is where the recipe names it, for messages. Raises ConfigError when the name leads nowhere, the arguments are
    refused, or the object is not an `EnvironmentFamily`.
    """
    module_name, colon, class_name = FAMILIES.get(name, name).partition(":")
    if not colon:
        raise ConfigError(
            f"{key}.name={name!r} is neither built in ({', '.join(FAMILIES)}) nor a path 'package.module:Class'"
        )
    with boundary(ConfigError, f"{key}.name={name!r} cannot be imported"):
        family_class = getattr(importlib.import_module(module_name), class_name)
    with boundary(ConfigError, f"{key}.args of {name!r}"):
        family = family_class(**arguments)
    if not isinstance(family, EnvironmentFamily):
        raise ConfigError(
            f"{key}.name={name!r} lacks one of task, build_environment, policy, texts (see EnvironmentFamily)"
        )
    return family
