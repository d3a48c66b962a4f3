"""Pixels as parts of messages, as PNG files and as data URLs."""

from __future__ import annotations

import base64
from dataclasses import replace
from io import BytesIO

import numpy as np
from PIL import Image

from turnwise.core.errors import PictureError
from turnwise.core.messages import ImagePart, Message, hash_pixels
from turnwise.core.pictures import Pictures, Pixels


def to_part(pixels: Pixels, *, label: str = "") -> ImagePart:
    """Build the part of a message for a picture, `[height, width, 3]`, RGB, uint8. `label` is a name for people."""
    height, width, _ = pixels.shape
    content = pixels.tobytes()
    digest = hash_pixels(content, width, height)
    return ImagePart(digest=digest, width=width, height=height, label=label, pixels=content)


def to_pixels(picture: ImagePart | Pixels) -> Pixels:
    """Return a picture's pixels, `[height, width, 3]`; those of a part cannot be written to.

    Raises PictureError for a part whose pixels are in a store.
    """
    if not isinstance(picture, ImagePart):
        return picture
    if picture.pixels is None:
        raise PictureError(
            f"picture {picture.digest[:12]}... has no pixels with it; read them from the run's store by its digest"
        )
    return np.frombuffer(picture.pixels, np.uint8).reshape(picture.height, picture.width, 3)


def to_png(picture: ImagePart | Pixels) -> bytes:
    """Return a picture as a PNG file; reading it gives the same pixels. Raises PictureError as `to_pixels` does."""
    file = BytesIO()
    Image.fromarray(to_pixels(picture)).save(file, format="PNG")
    return file.getvalue()


def to_data_url(picture: ImagePart | Pixels) -> str:
    """Return a picture as the data URL of a PNG file. Raises PictureError as `to_pixels` does."""
    return "data:image/png;base64," + base64.b64encode(to_png(picture)).decode()


def with_pixels(message: Message, pictures: Pictures) -> Message:
    """Return the message whose pictures have their pixels, read from a store. Raises StoreError as `Pictures.read`
    does."""
    if all(part.pixels is not None for part in message.images):
        return message
    parts = (
        replace(part, pixels=pictures.read(part.digest).tobytes())
        if isinstance(part, ImagePart) and part.pixels is None
        else part
        for part in message.content
    )
    return replace(message, content=tuple(parts))
