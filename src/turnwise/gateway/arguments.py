"""The canonical form of a tool call's arguments: equal for texts that mean the same JSON value.

Clients parse arguments and write them again: with other white space, key order, escapes and spellings of numbers, and
`{}` for an empty text. Duplicate keys collapse to the last. None of that is a change; another value is.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_EXACT = 2**53
"""Integers below this size are the same in every client; above it, those with 64-bit floats alone round them."""


def to_canonical(arguments: str) -> str:
    """Return the canonical form of arguments, ASCII only; "raw:" and the text itself if they are not JSON. Total."""
    if not arguments.strip():
        return "{}"
    try:
        return _write(_DECODER.decode(arguments))
    except (ValueError, RecursionError):
        return "raw:" + json.dumps(arguments)


def read_object(arguments: str) -> dict[str, Any] | None:
    """Return the arguments as an object, with no arguments for an empty text; None if they are something else, or hold
    a number that clients cannot read."""
    if not arguments.strip():
        return {}
    try:
        _DECODER.decode(arguments)
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class _Number(str):
    """A number, spelled as all its equals are."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _read_integer(text: str) -> _Number:
    return _Number(int(text))


def _read_float(text: str) -> _Number:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is no finite number")
    return _Number(int(value) if value.is_integer() and abs(value) < MAX_EXACT else repr(value))


_DECODER = json.JSONDecoder(parse_int=_read_integer, parse_float=_read_float, parse_constant=_refuse)


def _write(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_write(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    return json.dumps(value)
