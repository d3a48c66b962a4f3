"""What a tool returned, as text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice

import numpy as np
from PIL import Image

from turnwise.core.messages import ImagePart

MAX_ITEMS = 100_000
"""Most values that are taken from a generator."""


def to_text(result: object) -> str:
    """Convert a tool's result to what the model reads: text unchanged, anything else as JSON.

    Numbers and arrays of numpy and torch are JSON numbers and lists, bytes are read as UTF-8, None is `null`, what a
    generator yields is a list; values that JSON cannot represent are written with `str`. Half of a surrogate pair,
    which is not text, becomes a replacement character.
    """
    text = _decode(result) if isinstance(result, str | bytes | bytearray) else _write_json(result)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _decode(result: str | bytes | bytearray) -> str:
    return str(result) if isinstance(result, str) else bytes(result).decode("utf-8", "replace")


def _write_json(result: object) -> str:
    try:
        return json.dumps(result, ensure_ascii=False, default=_to_plain)
    except TypeError:  # keys that are not text
        return json.dumps(_with_text_keys(result), ensure_ascii=False, default=_to_plain)


def _with_text_keys(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _with_text_keys(each) for key, each in value.items()}
    return [_with_text_keys(each) for each in value] if isinstance(value, list | tuple) else value


def _to_plain(value: object) -> object:
    """Return a value that JSON can represent in place of one that it cannot."""
    if isinstance(value, Image.Image | ImagePart):
        raise ValueError("the result has a picture inside a dict or a list of lists; return it alone or in a list")
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f" and value.dtype.itemsize < 8:
        value = np.asarray(value).astype(str).astype(np.float64)  # 0.1 stays 0.1, not 0.10000000149011612
    if hasattr(value, "tolist"):  # of numpy and torch
        return value.tolist()
    if hasattr(value, "model_dump"):  # of pydantic
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, Iterator):  # of a generator function: what it yields, not its address
        items = list(islice(value, MAX_ITEMS + 1))
        if len(items) > MAX_ITEMS:
            raise ValueError(f"the result yields more than {MAX_ITEMS:,} values; return text or a list")
        return items
    if isinstance(value, AsyncIterator):
        raise ValueError("the result is an async generator; return text or a list")
    return _decode(value) if isinstance(value, bytes | bytearray) else str(value)


def clip(text: str, max_chars: int) -> tuple[str, int]:
    """Return at most `max_chars` characters of text, followed by a marker if it was longer; and how many were cut."""
    cut = len(text) - max_chars
    if cut <= 0:
        return text, 0
    return text[:max_chars] + mark_cut(cut), cut


def mark_cut(num_chars: int) -> str:
    """Return the marker in the place of text that was cut."""
    return f" [... {num_chars} characters cut]"
