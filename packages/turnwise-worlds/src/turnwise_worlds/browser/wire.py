"""What goes between a run and its browser's jail: lines of JSON, both ways."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

LINE_BYTES = 64 << 20
"""Longest line."""


class Asked(NamedTuple):
    """A request of the browser to a site that answers outside the jail."""

    method: str
    target: str
    """Path with its query."""
    fields: tuple[tuple[str, str], ...]
    """The body's form fields."""


class Replied(NamedTuple):
    """The site's answer."""

    status: int
    html: str
    location: str
    """Where the browser is sent (with status 303), else ""."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the message of a line. Raises ValueError if it is none."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("no message")
    return message
