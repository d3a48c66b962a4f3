"""Draw pictures in a page without files beside it: each is a small PNG in a data URL."""

from __future__ import annotations

from html import escape

import numpy as np
from PIL import Image

from turnwise.core.errors import StoreError
from turnwise.core.messages import ImagePart, describe_part
from turnwise.core.pictures import Pictures, Pixels
from turnwise.pictures.pixels import to_data_url

MAX_SIDE = 320
"""Largest width and height in pixels; a larger picture is scaled down."""
MIN_SIDE = 96
"""A picture whose longer side has fewer pixels is enlarged by a whole number, without smoothing."""
MAX_BYTES = 8_000_000
"""Most characters of data URLs in a page; pictures after them are named only."""


class PictureDrawer:
    """Draws the pictures of one page, within its limit."""

    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._urls: dict[str, str] = {}
        self._left = MAX_BYTES

    def draw(self, part: ImagePart) -> str:
        """Return an `<img>`, or the name of a picture that is missing, damaged or one too many, and why."""
        name = describe_part(part)
        try:
            url = self._find_url(part.digest)
        except StoreError as cause:
            return f'<span class="lost" title="{escape(str(cause))}">{escape(name)} cannot be shown</span>'
        if len(url) > self._left:
            return f'<span class="lost" title="the page is full">{escape(name)}</span>'
        self._left -= len(url)
        alt = escape(f"{name} {part.label}".rstrip())
        width, height = fit(part.width, part.height)
        crisp = ' class="crisp"' if width > part.width else ""
        return f'<img src="{url}" width="{width}" height="{height}" alt="{alt}" title="{alt}"{crisp}>'

    def _find_url(self, digest: str) -> str:
        if digest not in self._urls:
            self._urls[digest] = to_data_url(_shrink(self._pictures.read(digest)))
        return self._urls[digest]


def fit(width: int, height: int) -> tuple[int, int]:
    """Return the size at which a picture is drawn: at most `MAX_SIDE` a side, and a multiple of its own below
    `MIN_SIDE`."""
    longest = max(width, height)
    if longest > MAX_SIDE:
        return max(1, round(width * MAX_SIDE / longest)), max(1, round(height * MAX_SIDE / longest))
    times = -(-MIN_SIDE // longest) if longest < MIN_SIDE else 1
    return width * times, height * times


def _shrink(pixels: Pixels) -> Pixels:
    height, width, _ = pixels.shape
    if max(width, height) <= MAX_SIDE:
        return pixels
    return np.array(Image.fromarray(pixels).resize(fit(width, height), Image.Resampling.BICUBIC))
