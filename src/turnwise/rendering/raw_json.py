"""Reads JSON values as spelled: their text with its spacing, key order and spelling of numbers."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_MAX_TRIES = 100
_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
"""Decodes standard JSON, which excludes NaN and Infinity."""


def is_json(text: str) -> bool:
    """Whether the text is one JSON value, with or without white space around it."""
    try:
        DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def read_prefix(text: str, start: int) -> int | None:
    """Return where the JSON value that begins at `start` ends; None if none begins there."""
    try:
        return DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def split_members(text: str) -> dict[str, str]:
    """Return the text of every value of a JSON object by key; for a repeated key the last one.

    Raises ValueError (or RecursionError) when the text is not an object.
    """
    if not isinstance(DECODER.decode(text), dict):
        raise ValueError("not a JSON object")
    members: dict[str, str] = {}
    at = text.index("{") + 1
    while (at := _skip(text, at)) < len(text) and text[at] != "}":
        key, at = DECODER.raw_decode(text, _skip(text, at + (text[at] == ",")))
        start = _skip(text, _skip(text, at) + 1)  # after the colon
        _, at = DECODER.raw_decode(text, start)
        members[key] = text[start:at]
    return members


def split_items(text: str) -> list[str]:
    """Return the text of every item of a JSON list. Raises ValueError (or RecursionError) when the text is not a
    list."""
    if not isinstance(DECODER.decode(text), list):
        raise ValueError("not a JSON list")
    items: list[str] = []
    at = text.index("[") + 1
    while (at := _skip(text, at)) < len(text) and text[at] != "]":
        start = _skip(text, at + (text[at] == ","))
        _, at = DECODER.raw_decode(text, start)
        items.append(text[start:at])
    return items


def find_object(text: str, value: dict[str, Any]) -> str | None:
    """Return the text of the first JSON object in `text` that reads as `value`; None if there is none.

    Tries only the first `_MAX_TRIES` braces, so that the time stays linear.
    """
    wanted = json.dumps(value)
    at = -1
    for _ in range(_MAX_TRIES):
        if (at := text.find("{", at + 1)) < 0:
            break
        try:
            read, end = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if json.dumps(read) == wanted:
            return text[at:end]
    return None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
