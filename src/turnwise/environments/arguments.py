"""Checks of a family's arguments, which come from a recipe: every refusal names the argument, its value and the
remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from turnwise.core.errors import ConfigError


def check_choices(**arguments: tuple[Any, Any]) -> None:
    """Each argument's value and the `Literal` it must be one of. Raises ConfigError."""
    for name, (value, choices) in arguments.items():
        if value not in get_args(choices) or type(value) is not type(get_args(choices)[0]):
            raise ConfigError(f"{name}={value!r} is unknown; use one of {', '.join(map(repr, get_args(choices)))}")


def check_number(name: str, value: Any, kind: type[int] | type[float], minimum: float, maximum: float) -> None:
    """A whole number for `int`, any finite number for `float`, within the bounds. Raises ConfigError."""
    allowed = int if kind is int else int | float
    if isinstance(value, bool) or not isinstance(value, allowed) or not minimum <= value <= maximum:
        raise ConfigError(
            f"{name}={value!r} is out of range; give a {'whole ' if kind is int else ''}number from {minimum:g} to "
            f"{maximum:g}"
        )


def check_weights(name: str, weights: Any, known: Sequence[str]) -> dict[str, float]:
    """A table of weights without its zero ones; all of `known` with the same weight for None. Raises ConfigError."""
    if weights is None:
        return dict.fromkeys(known, 1.0)
    if not isinstance(weights, Mapping):
        raise ConfigError(f"{name}={weights!r} is not a table; give weights such as {{{known[0]!r}: 1.0}}")
    for key, weight in weights.items():
        if key not in known:
            raise ConfigError(f"{name}.{key}={weight!r}: there is no such kind; use {', '.join(known)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"{name}.{key}={weight!r} is no weight; give a number of at least 0")
    positive = {key: float(weight) for key, weight in weights.items() if weight > 0}
    if not positive:
        raise ConfigError(f"{name}={dict(weights)!r} has no positive weight; give at least one kind a weight above 0")
    return positive
