"""Write messages with pictures for programs that read chat messages: OpenAI's and Anthropic's content parts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from turnwise.core.messages import ImagePart, Part, TextPart
from turnwise.core.pictures import Pictures, Pixels
from turnwise.pictures.pixels import to_data_url, to_png

ToUrl = Callable[[ImagePart], str]
"""Returns the address under which a reader finds a picture."""


def write_content(parts: Sequence[Part], to_url: ToUrl) -> str | list[dict[str, Any]]:
    """Return a message's content in OpenAI's layout: its text, or a list of parts if it has pictures. Empty texts are
    left out of the list, as some servers refuse them."""
    if not any(isinstance(part, ImagePart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": to_url(part)}}
        for part in parts
        if part != TextPart(text="")
    ]


def write_anthropic_content(parts: Sequence[Part], pictures: Pictures | None) -> str | list[dict[str, Any]]:
    """Return a message's content in Anthropic's layout, as `write_content` does in OpenAI's. Raises as `find_pixels`
    does."""
    content = write_content(parts, lambda part: base64.b64encode(to_png(find_pixels(part, pictures))).decode())
    if isinstance(content, str):
        return content
    return [
        part
        if part["type"] == "text"
        else {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": part["image_url"]["url"]},
        }
        for part in content
    ]


def embed(pictures: Pictures | None) -> ToUrl:
    """Return a function that makes data URLs of PNG files. It raises as `find_pixels` does."""
    return lambda part: to_data_url(find_pixels(part, pictures))


EMBEDDED = embed(None)
"""Makes data URLs of pictures that have their pixels."""


def find_pixels(part: ImagePart, pictures: Pictures | None) -> ImagePart | Pixels:
    """Return a part that has its pixels, or a picture from the store; without a store, the part as it is. Raises
    StoreError if the store does not have it."""
    return part if part.pixels is not None or pictures is None else pictures.read(part.digest)
