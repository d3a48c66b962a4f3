"""Quotes text for YAML as Playwright's accessibility snapshots do."""

from __future__ import annotations

import re

_NEEDS_QUOTES = re.compile(
    r"""^$|^\s|\s$|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|^-|[\n:](\s|$)|\s\#|[\n\r]|^[&*\],?!>|@"'\#%\[]|[{}`]"""
)
_WORDS = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})
_NUMBER = re.compile(
    r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|Infinity)|0[xX][\da-fA-F]+|0[oO][0-7]+|0[bB][01]+"
)
_SHORT = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def needs_quotes(text: str) -> bool:
    """Return whether a plain YAML scalar of this text would be read as something else."""
    return bool(_NEEDS_QUOTES.search(text) or _NUMBER.fullmatch(text.strip()) or text.lower() in _WORDS)


def quote_value(text: str) -> str:
    """Return a text as a YAML value, in double quotes where it needs them."""
    if not needs_quotes(text):
        return text
    escaped = re.sub(r"""[\\"\x00-\x1f\x7f-\x9f]""", lambda each: _escape(each[0]), text)
    return f'"{escaped}"'


def quote_key(text: str) -> str:
    """Return a text as a YAML key, in single quotes where it needs them."""
    return "'" + text.replace("'", "''") + "'" if needs_quotes(text) else text


def _escape(character: str) -> str:
    return _SHORT.get(character) or f"\\x{ord(character):02x}"
