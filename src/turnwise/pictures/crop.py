"""Cut pieces out of pictures, and name them so that anybody with the source can cut them again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from turnwise.core.errors import PictureError, ToolFailure
from turnwise.core.messages import ImagePart
from turnwise.core.pictures import Pictures, Pixels
from turnwise.core.returned import show
from turnwise.pictures.decode import MAX_SIDE
from turnwise.pictures.pixels import to_part, to_pixels

MIN_SIDE = 28
"""Smallest width and height of a zoomed box, in pixels: one patch of Qwen2-VL."""
MAX_ASPECT = 100
"""Largest ratio of a zoomed box's sides."""
Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; the right column and the bottom row are the first ones outside."""

_LABEL = re.compile(r"crop of ([0-9a-f]{64}) at (\d+),(\d+),(\d+),(\d+)(?: as (\d+)x(\d+))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crop:
    """How a picture was cut out of another one. It is the cut picture's label: `str(crop)`, read by `read_crop`."""

    source: str
    """Digest of the picture that it was cut from."""
    box: Box
    size: tuple[int, int] | None = None
    """Width and height to which the piece was scaled; None keeps its own."""

    def __str__(self) -> str:
        scaled = "" if self.size is None else f" as {self.size[0]}x{self.size[1]}"
        return f"crop of {self.source} at {','.join(map(str, self.box))}{scaled}"


def read_crop(label: str) -> Crop | None:
    """Return the crop that a picture's label describes; None if the label is another one."""
    if (match := _LABEL.fullmatch(label)) is None:
        return None
    left, top, right, bottom = (int(match[at]) for at in range(2, 6))
    size = None if match[6] is None else (int(match[6]), int(match[7]))
    return Crop(source=match[1], box=(left, top, right, bottom), size=size)


def crop(picture: ImagePart | Pixels, box: Box, size: tuple[int, int] | None = None) -> ImagePart:
    """Cut `box` out of a picture, then scale it to `size` (width, height) if one is given.

    Scaling is Pillow's BICUBIC, which averages over the source's pixels where it makes a picture smaller; it computes
    in whole numbers, so the same box gives the same pixels everywhere. The label of the result is its `Crop`.

    Raises PictureError for a box that is empty or reaches out of the picture, for a size below 1 or above `MAX_SIDE`,
    and for a part without pixels.
    """
    pixels = to_pixels(picture)
    height, width, _ = pixels.shape
    left, top, right, bottom = box
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise PictureError(f"the box {box} is not inside a picture of {width} x {height} pixels; cut within it")
    if size is not None and not all(0 < side <= MAX_SIDE for side in size):
        raise PictureError(f"a crop cannot be scaled to {size[0]} x {size[1]} pixels; give 1 to {MAX_SIDE:,} a side")
    source = picture.digest if isinstance(picture, ImagePart) else to_part(pixels).digest
    piece = np.ascontiguousarray(pixels[top:bottom, left:right])
    if size is not None and size != (right - left, bottom - top):
        piece = np.array(Image.fromarray(piece).resize(size, Image.Resampling.BICUBIC))
    return to_part(piece, label=str(Crop(source=source, box=(left, top, right, bottom), size=size)))


def cut_again(made: Crop, pictures: Pictures) -> ImagePart:
    """Cut a crop once more from its source in a store. Raises StoreError as `Pictures.read` does, and PictureError if
    its box is not inside the source."""
    return crop(pictures.read(made.source), made.box, made.size)


def zoom(
    picture: ImagePart,
    bbox_2d: object,
    *,
    size: tuple[int, int] | None = None,
    min_side: int = MIN_SIDE,
    out_of: int | None = None,
) -> ImagePart:
    """Cut out of a picture what a model asked to see: DeepEyes' `image_zoom_in_tool`.

    See `read_box` for `bbox_2d`, `min_side` and `out_of`, and `crop` for `size`. Raises ToolFailure, which tells the
    model what is wrong with its box.
    """
    return crop(picture, read_box(bbox_2d, picture.width, picture.height, min_side=min_side, out_of=out_of), size)


def read_box(bbox_2d: object, width: int, height: int, *, min_side: int = MIN_SIDE, out_of: int | None = None) -> Box:
    """Return the box of whole pixels that a model means by `bbox_2d` in a picture of `width` x `height` pixels.

    `bbox_2d` is a list of four numbers, left, top, right and bottom, or JSON of one: pixels, or `out_of`-ths of the
    picture's sides where that is given (Qwen3-VL counts in thousandths). The box is clamped to the picture, rounded
    outwards to whole pixels, and then widened around its centre to `min_side` pixels a side, or to the picture's side
    where that is shorter.

    The source is DeepEyes (arXiv 2505.14362), which clamps, asks for an aspect ratio of at most 100, and enlarges a
    box with a side below 28 pixels. Deviations: DeepEyes scales both sides by the same factor, so its box can reach out
    of the picture, and then refuses it; here each side that is too short is widened alone and kept inside.

    Raises ToolFailure, which tells the model what is wrong: not four finite numbers, corners that are reversed or
    outside the picture, a side more than `MAX_ASPECT` times the other.
    """
    left, top, right, bottom = _read_numbers(bbox_2d)
    if out_of is not None:
        left, top, right, bottom = (
            value * side / out_of
            for value, side in zip((left, top, right, bottom), (width, height, width, height), strict=True)
        )
    if left >= right or top >= bottom:
        raise ToolFailure("bbox_2d must be [left, top, right, bottom] with left < right and top < bottom")
    left, top, right, bottom = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
    if left >= right or top >= bottom:
        limits = f"{width} x {height} pixels" if out_of is None else f"{out_of} x {out_of}"
        raise ToolFailure(f"bbox_2d is outside the image, which has {limits}")
    if max(right - left, bottom - top) > MAX_ASPECT * min(right - left, bottom - top):
        raise ToolFailure(f"bbox_2d is more than {MAX_ASPECT} times as long as it is wide; choose a less narrow box")
    left, right = _widen(math.floor(left), math.ceil(right), width, min_side)
    top, bottom = _widen(math.floor(top), math.ceil(bottom), height, min_side)
    return left, top, right, bottom


def _widen(start: int, end: int, side: int, min_side: int) -> tuple[int, int]:
    """Return a range around the same centre, at least `min_side` long, inside 0 to `side`."""
    length = min(max(end - start, min_side), side)
    start = min(max(start - (length - (end - start)) // 2, 0), side - length)
    return start, start + length


def _read_numbers(bbox_2d: object) -> list[float]:
    value: Any = bbox_2d
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = bbox_2d
    listed = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()
    numbers = [float(each) for each in listed if type(each) in (int, float) and abs(each) < 1e9]
    if len(listed) == len(numbers) == 4:
        return numbers
    raise ToolFailure(f"bbox_2d must be four numbers [left, top, right, bottom], not {show(bbox_2d)}")
