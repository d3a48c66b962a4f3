"""Environments given as objects: how a recipe, which contains only names, finds them in this process.

A class from a notebook or a script gets the name `turnwise.api.given:Class`, which the registry imports like any other.
"""

from __future__ import annotations

import sys
from typing import Any

from turnwise.core.errors import ConfigError

_GIVEN: dict[str, Any] = {}
_LIMITS = ("tool_timeout_s", "max_observation_chars")
"""Arguments that a run may pass to every family besides `environment.args`."""


def name_environment(environment: object) -> str:
    """The `environment.name` for a name, a class, or a family that is already built.

    A class at the top of an importable module gets its import path, so that any process can continue the run.
    Anything else gets a name that only this process knows; another given object of the same class replaces it.
    """
    if isinstance(environment, str):
        return environment
    if not isinstance(environment, type):
        name = type(environment).__name__
        _GIVEN[name] = _always(environment)
        return f"{__name__}:{name}"
    name, module = environment.__name__, environment.__module__
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is environment:
        return f"{module}:{name}"
    _GIVEN[name] = environment
    return f"{__name__}:{name}"


def _always(family: object) -> Any:
    def build(**arguments: object) -> object:
        """The given family, which keeps the tool limits that it was built with. Raises ConfigError for arguments, which
        only a class can take."""
        arguments = {name: value for name, value in arguments.items() if name not in _LIMITS}
        if arguments:
            raise ConfigError(
                f"environment is a {type(family).__name__} that is already built and takes no {', '.join(arguments)}; "
                "pass its class, and the arguments as environment.args"
            )
        return family

    return build


def __getattr__(name: str) -> Any:
    """The object given under a name. Raises ConfigError in a process that was given nothing under it."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in _GIVEN:
        raise ConfigError(
            f"environment {name!r} was passed to turnwise.train as an object from a script or notebook, and this "
            "process has no object of that name; call turnwise.train with it here, or move its class into a module and "
            "name it 'module:Class'"
        )
    return _GIVEN[name]
