"""What a tool returned, in the form that a model sees: text, pictures, or both in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.core.messages import Part, TextPart
from turnwise.pictures.read import is_picture, read_picture
from turnwise.tools.text import mark_cut, to_text


def to_parts(result: object, where: str) -> tuple[Part, ...]:
    """Convert a tool's result to what the model sees.

    What is a picture says `is_picture`. A list with a picture in it is its items in order: pictures, texts (also
    `{"type": "text", "text": ...}`), and anything else as JSON. Any other result is one text (see `to_text`).

    Raises PictureError, which starts with `where`, for a picture that cannot be read.
    """
    items = list(result) if isinstance(result, list | tuple) else [result]
    if not any(map(is_picture, items)):
        return (TextPart(text=to_text(result)),)
    return tuple(
        read_picture(item, where=f"picture {index} of {where}" if len(items) > 1 else where)
        if is_picture(item)
        else _read_text(item)
        for index, item in enumerate(items)
    )


def _read_text(item: Any) -> TextPart:
    match item:
        case TextPart():
            return item
        case {"type": "text", "text": str(text)}:
            return TextPart(text=text)
    return TextPart(text=to_text(item))


def clip_parts(parts: Sequence[Part], max_chars: int) -> tuple[tuple[Part, ...], int]:
    """Return parts with at most `max_chars` characters of text in all, a marker where text was cut off, and how many
    characters were cut. Pictures stay."""
    num_cut = sum(len(part.text) for part in parts if isinstance(part, TextPart)) - max_chars
    if num_cut <= 0:
        return tuple(parts), 0
    kept: list[Part] = []
    left: int | None = max_chars
    for part in parts:
        if not isinstance(part, TextPart):
            kept.append(part)
        elif left is not None and len(part.text) <= left:
            kept.append(part)
            left -= len(part.text)
        elif left is not None:
            kept.append(TextPart(text=part.text[:left] + mark_cut(num_cut)))
            left = None
    return tuple(kept), num_cut
