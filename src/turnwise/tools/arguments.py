"""Reads the arguments of a call from JSON and checks them against the tool's schema and function."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any, NoReturn

from turnwise.core.errors import ToolFailure
from turnwise.core.types import ToolSpec
from turnwise.rendering.schema_types import read_types
from turnwise.tools.schema import make_whole, read_schema, validate

_KINDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("boolean", bool),
    ("string", str),
    ("integer", int),
    ("number", float),
    ("array", list),
    ("object", dict),
    ("null", type(None)),
)


def read_arguments(spec: ToolSpec, raw: str, function: Callable[..., object]) -> dict[str, Any]:
    """Return the checked arguments. Raises ToolFailure with the message for the model.

    They are as in the JSON, except that 3.0 becomes 3 where an integer is expected. A name unknown to the schema is
    refused if the schema allows no further names, or if the function cannot accept it.
    """
    try:
        arguments = json.loads(raw, parse_constant=_refuse_constant)
        # A lone surrogate, or a number beyond the range of floats, would crash the next encoder.
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise ToolFailure(f"the arguments of {spec.name} are not valid JSON") from None
    if not isinstance(arguments, dict):
        raise ToolFailure(f"the arguments of {spec.name} must be a JSON object")
    schema = read_schema(spec.parameters)
    properties = {name: part for name, part in schema["properties"].items() if part is not False}
    taken = _read_names(function)
    unknown = [
        key
        for key in arguments
        if key not in properties
        and (
            key in schema["properties"]
            or schema.get("additionalProperties") is False
            or (taken is not None and key not in taken)
        )
    ]
    missing = [key for key in schema["required"] if key not in arguments]
    if missing or unknown:
        problem = f"missing: {', '.join(missing)}" if missing else f"unknown: {', '.join(unknown)}"
        raise ToolFailure(f"{spec.name} takes {', '.join(properties) or 'no arguments'}; {problem}")
    try:
        fault = validate(arguments, spec.parameters)
    except RecursionError:
        raise ToolFailure(f"the arguments of {spec.name} are nested too deeply") from None
    if fault is not None:
        raise ToolFailure(_describe(fault, spec.name))
    whole: dict[str, Any] = make_whole(arguments, schema, schema)
    return whole


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _read_names(function: Callable[..., object]) -> frozenset[str] | None:
    """Return the names of the arguments that a function accepts; None if it accepts any, or has no readable
    signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in by_name)


def _describe(fault: Any, tool: str) -> str:
    """Describe an error from the `jsonschema` package in a sentence for the model."""
    where = tool
    for part in fault.absolute_path:
        where = f"item {part} of {where}" if isinstance(part, int) else f"{part} of {where}"
    if fault.validator == "type":
        return f"{where} must be of type {' or '.join(read_types(fault.schema))}, not {_name_type(fault.instance)}"
    if fault.validator == "enum":
        return f"{where} must be one of {json.dumps(fault.validator_value, ensure_ascii=False)}"
    if fault.validator in ("anyOf", "oneOf"):
        return f"{where} fits {'none' if fault.context else 'several'} of the allowed types"
    return f"{where}: {fault.message[:200]}"


def _name_type(value: object) -> str:
    return next(name for name, kind in _KINDS if isinstance(value, kind))
