"""A layout of pictures without a model, and pictures without a file: for tests of what is above towers."""

from dataclasses import dataclass

import numpy as np

from turnwise.core.errors import StoreError
from turnwise.core.keys import Span
from turnwise.core.messages import hash_pixels
from turnwise.core.pictures import Pixels
from turnwise.core.types import ImagePart, Message, Prompt, Role, TextPart, to_ids


def paint(color: int, width: int = 4, height: int = 4) -> ImagePart:
    """A picture of one shade of grey."""
    pixels = bytes([color]) * (width * height * 3)
    return ImagePart(digest=hash_pixels(pixels, width, height), width=width, height=height, pixels=pixels)


def show(role: Role, *parts: str | ImagePart, call: str | None = None) -> Message:
    """A message of texts and pictures."""
    content = tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    return Message(role=role, content=content, tool_call_id=call)


@dataclass
class PlainLayout:
    """Implements `PictureLayout`: one place per two pixels of width."""

    marker_id: int
    marker: str = "<image>"

    def lay_out(self, part: ImagePart) -> Prompt:
        """See `PictureLayout`."""
        count = part.width // 2
        return Prompt(
            token_ids=to_ids([self.marker_id] * count), images=(Span(start=0, length=count, digest=part.digest),)
        )


class HeldPictures:
    """Implements `Pictures` in memory."""

    def __init__(self) -> None:
        self.parts: dict[str, ImagePart] = {}

    def put(self, part: ImagePart) -> None:
        """See `Pictures`."""
        if part.pixels is not None:
            self.parts[part.digest] = part
        elif part.digest not in self.parts:
            raise StoreError(f"picture {part.digest} is missing")

    def read(self, digest: str) -> Pixels:
        """See `Pictures`."""
        part = self.parts[digest]
        return np.frombuffer(part.pixels or b"", np.uint8).reshape(part.height, part.width, 3)
