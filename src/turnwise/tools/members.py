"""Converts the values in a call to members of enumerations where a function's type hint names an `enum.Enum`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def find_members(function: Callable[..., object]) -> dict[str, Any]:
    """Return the type hints, by parameter, that name an Enum, alone or inside unions, lists and dictionaries."""
    try:
        hints = get_type_hints(inspect.unwrap(function))
    except (TypeError, NameError, AttributeError):
        return {}
    return {name: hint for name, hint in hints.items() if name != "return" and _names_enum(hint)}


def read_members(arguments: dict[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """Replace values by members of enumerations where a hint asks for them; returns the arguments."""
    return {name: _read(value, hints[name]) if name in hints else value for name, value in arguments.items()}


def _is_enum(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _names_enum(hint: object) -> bool:
    return _is_enum(hint) or any(_names_enum(each) for each in get_args(hint))


def _read(value: Any, hint: Any) -> Any:
    kind, inner = get_origin(hint), get_args(hint)
    if _is_enum(hint):
        return hint(value)
    if kind in (Union, UnionType):
        if any(isinstance(each, type) and not _is_enum(each) and isinstance(value, each) for each in inner):
            return value
        fitting = (each for each in inner if _fits(value, each))
        return _read(value, next(fitting, None))
    if kind is list and isinstance(value, list):
        return [_read(each, inner[0]) for each in value]
    if kind is dict and isinstance(value, dict):
        return {key: _read(each, inner[1]) for key, each in value.items()}
    return value


def _fits(value: Any, hint: Any) -> bool:
    if _is_enum(hint):
        return any(member.value == value and type(member.value) is type(value) for member in hint)
    return isinstance(get_origin(hint), type) and isinstance(value, get_origin(hint))
