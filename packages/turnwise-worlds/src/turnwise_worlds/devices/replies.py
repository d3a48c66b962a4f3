"""Reads the one JSON object of a reply and its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.core.errors import ToolFailure

_DECODER = json.JSONDecoder()


def read_object(text: str) -> Mapping[str, Any]:
    """Return the first JSON object of a text; reasoning before it and anything after it do not count. A table named
    "parameters" is laid over the other fields, as in OSWorld's action space.

    Raises ToolFailure if there is none.
    """
    start = text.find("{")
    try:
        read = _DECODER.raw_decode(text, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise ToolFailure('no action; write one JSON object with "action_type"')
    inner = read.get("parameters")
    return {**read, **inner} if isinstance(inner, dict) else read


def read_whole(given: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number, which may be spelled as text as AndroidWorld allows; None if it is missing. Raises
    ToolFailure for anything else."""
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 7:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 10**6:
        raise ToolFailure(f"{name} must be a whole number")
    return value


def read_text(given: Mapping[str, Any], name: str) -> str:
    """Return a text. Raises ToolFailure if it is missing or no text."""
    value = given.get(name)
    if not isinstance(value, str):
        raise ToolFailure(f"{name} must be a text")
    return value
