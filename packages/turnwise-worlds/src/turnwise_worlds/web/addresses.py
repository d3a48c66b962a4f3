"""Queries of addresses, encoded as a browser encodes the fields of a form."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote_plus


def encode_fields(fields: Mapping[str, str]) -> str:
    """Return fields as application/x-www-form-urlencoded: letters, digits and `*-._` as they are, blanks as `+`."""
    return "&".join(f"{_encode(name)}={_encode(value)}" for name, value in fields.items())


def _encode(text: str) -> str:
    return quote_plus(text, safe="*", errors="replace").replace("~", "%7E")


def decode_fields(query: str) -> dict[str, str]:
    """Read a query or the body of a form; of fields with one name the last counts. Bytes that are no UTF-8 become
    U+FFFD."""
    return dict(parse_qsl(query, keep_blank_values=True, errors="replace"))
