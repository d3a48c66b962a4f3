"""Keeps the pictures of a request in the run's store, so that messages hold no pixels."""

from __future__ import annotations

from turnwise.core.errors import PictureError
from turnwise.core.messages import ImagePart
from turnwise.core.pictures import Pictures
from turnwise.pictures.read import read_picture

MAX_REQUEST_PIXELS = 1 << 26
"""Most pixels of all pictures of one request, 200 MB once they are decoded."""


class PictureReader:
    """Reads the pictures of one request."""

    def __init__(self, pictures: Pictures) -> None:
        """`pictures` is where they are kept."""
        self._pictures = pictures
        self._num_pixels = 0

    def read(self, picture: bytes | str) -> ImagePart:
        """Keep a picture, the bytes of a file or a data URL, and return it without its pixels.

        Raises PictureError for one that cannot be read or is too many, StoreError if it cannot be kept.
        """
        part = read_picture(picture, where="it")
        self._num_pixels += part.width * part.height
        if self._num_pixels > MAX_REQUEST_PIXELS:
            raise PictureError(f"it and the pictures before it have more than {MAX_REQUEST_PIXELS:,} pixels; send less")
        self._pictures.put(part)
        return ImagePart(digest=part.digest, width=part.width, height=part.height)
