"""Decode pictures with Pillow into their canonical form: upright, 8-bit RGB, without transparency.

A file is read by its content; its name and its declared type are not looked at. Sizes are checked on the header, before
anything is decoded.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from turnwise.core.errors import PictureError, boundary
from turnwise.core.pictures import Pixels

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""Formats that are read. Pillow knows others that run programs (EPS) or that few decoders have tried."""
MAX_SIDE = 16_384
"""Largest width and height, in pixels."""
MAX_PIXELS = 1 << 26
"""Largest number of pixels of one picture, 200 MB as RGB: a compressed file of a few kB can ask for far more."""
MAX_BYTES = 1 << 28
"""Largest file."""
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N")
"""Modes of 16-bit grey."""


def load_file(path: Path, where: str) -> Pixels:
    """Return the pixels of a file, `[height, width, 3]`. Raises PictureError, which starts with `where`."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PictureError(f"{where} has {path.stat().st_size:,} bytes; give a file of at most {MAX_BYTES:,}")
        content = path.read_bytes()
    except OSError as cause:
        raise PictureError(
            f"{where} cannot be read: {cause.strerror or cause}; check its path and permissions"
        ) from None
    return decode(content, where)


def decode(content: bytes, where: str) -> Pixels:
    """Return the pixels of an encoded picture, `[height, width, 3]`. Raises PictureError, which starts with `where`."""
    if not content:
        raise PictureError(f"{where} is empty; give a whole file")
    if len(content) > MAX_BYTES:
        raise PictureError(f"{where} has {len(content):,} bytes; give at most {MAX_BYTES:,}")
    with boundary(PictureError, f"{where} cannot be decoded; give a whole, undamaged picture"):
        try:
            image = Image.open(BytesIO(content), formats=FORMATS)
        except UnidentifiedImageError:
            raise PictureError(
                f"{where} is no picture that can be read; give PNG, JPEG, WebP, GIF or BMP, undamaged"
            ) from None
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):  # it only warns unless told otherwise
            raise PictureError(f"{where} has too many pixels; make it at most {MAX_PIXELS:,} in all") from None
        with image:
            return convert(image, where)


def convert(image: Image.Image, where: str) -> Pixels:
    """Return the pixels of a Pillow image, `[height, width, 3]`, in canonical form.

    The rotation that its EXIF data ask for is applied. Transparent pixels are laid on white. 16-bit grey keeps its high
    bytes, which is what Pillow's PNG reader keeps of 16-bit colour; colour profiles are ignored.

    Raises PictureError, which starts with `where`, for sizes beyond the limits, animations, and modes whose range of
    values is not known.
    """
    check_size(image.width, image.height, where)
    if getattr(image, "is_animated", False) and image.format != "MPO":  # MPO: a photo followed by its previews
        raise PictureError(
            f"{where} is animated; give one frame: image.seek(number), then image.copy(), for each that is wanted"
        )
    with boundary(PictureError, f"{where} cannot be decoded; give a whole, undamaged picture"):
        upright = ImageOps.exif_transpose(image)
        if upright.mode in ("I", "F"):
            raise PictureError(
                f"{where} has pixels of Pillow's mode {upright.mode!r}, whose range is not known; scale them to 0..255 "
                "and convert them to 'L'"
            )
        if upright.mode in _DEEP:
            upright = Image.fromarray((np.asarray(upright).astype(np.uint16) >> 8).astype(np.uint8))
        if upright.has_transparency_data:
            opaque = Image.new("RGBA", upright.size, "white")
            upright = Image.alpha_composite(opaque, upright.convert("RGBA"))
        return np.array(upright.convert("RGB"))


def check_size(width: int, height: int, where: str) -> None:
    """Raise PictureError, which starts with `where`, for a size beyond the limits."""
    size = f"{where} has {width:,} x {height:,} pixels"
    if width < 1 or height < 1:
        raise PictureError(f"{size}; give one with at least one pixel")
    if max(width, height) > MAX_SIDE:
        raise PictureError(f"{size}; make it at most {MAX_SIDE:,} pixels wide and high")
    if width * height > MAX_PIXELS:
        raise PictureError(f"{size}; make it smaller, to at most {MAX_PIXELS:,} pixels in all")
