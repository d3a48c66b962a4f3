"""Read a picture from whatever it is given as: a Pillow image, an array, a file, a data URL, bytes, a cell of a row, a
part of a chat message.

Nothing is downloaded: an http address is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import numpy as np
from PIL import Image

from turnwise.core.errors import PictureError
from turnwise.core.messages import ImagePart
from turnwise.core.pictures import Pixels, find_fault
from turnwise.core.returned import show
from turnwise.pictures.decode import check_size, convert, decode, load_file
from turnwise.pictures.pixels import to_data_url as to_data_url
from turnwise.pictures.pixels import to_part as to_part
from turnwise.pictures.pixels import to_png as to_png

PICTURE_TYPES = ("image", "image_url", "input_image")
"""Types of the parts of a message that are pictures, as chat APIs, processors and TRL name them."""
KEYS = ("image", "image_url", "url", "bytes", "base64", "data", "source", "path")
"""Keys of a dict under which a picture is given; the first one that is present and not None is read."""
_WANTED = (
    "give a path, a data URL, the bytes of a file, {'bytes': ..., 'path': ...}, a uint8 array [height, width, 3] or a "
    "Pillow image"
)
_DEPTH = 4
"""Most dicts in each other: {"type": "image", "image": {"bytes": ...}} are two."""


def is_picture(value: object) -> bool:
    """Return whether a value is a picture whatever it is among: a Pillow image, an `ImagePart`, or a part of a message
    whose type is one of `PICTURE_TYPES`."""
    return isinstance(value, ImagePart | Image.Image) or (
        isinstance(value, Mapping) and value.get("type") in PICTURE_TYPES
    )

LONGEST_PATH = 400
"""Characters of a path that an error shows whole; what is longer is mostly base64."""


def read_picture(value: Any, *, label: str = "", where: str = "", folder: Path | None = None) -> ImagePart:
    """Return a picture as part of a message, with its pixels: upright, 8-bit RGB, transparency laid on white.

    `value` is one of these:

    - an `ImagePart`, which is checked;
    - a Pillow image, in any mode but 'I' and 'F';
    - a uint8 array: `[height, width, 3]`, `[height, width, 4]`, `[height, width, 1]` or `[height, width]`;
    - a path, as `Path` or text, relative to `folder` (the working folder if None), or a `file://` URL;
    - a data URL with base64;
    - the bytes of a file: PNG, JPEG, WebP, GIF or BMP with one frame, recognised by its content;
    - a dict that has one of these under a key of `KEYS`: a cell of Hugging Face's (`{"bytes": ..., "path": ...}`), or
      a content part of a chat message (`{"type": "image_url", "image_url": {"url": ...}}`, `{"type": "image", "image":
      ...}`, and those with `base64`, `data` or `source`).

    `label` is a name for people; that of a file is its name if none is given.

    Raises:
        PictureError: one line that starts with `where`, or "the picture" without it, and ends with the remedy.
    """
    where = where or "the picture"
    for _ in range(_DEPTH):
        if not isinstance(value, Mapping):
            break
        value = _open(value, where)
    match value:
        case ImagePart():
            if (fault := find_fault(value)) is not None:
                raise PictureError(f"{where} is a picture {fault}; build it with read_picture")
            return value
        case Image.Image():
            return to_part(convert(value, where), label=label)
        case np.ndarray():
            return to_part(_read_array(value, where), label=label)
        case bytes() | bytearray() | memoryview():
            return to_part(decode(bytes(value), where), label=label)
        case Path():
            return _read_file(value, where, label, folder)
        case str():
            return _read_text(value, where, label, folder)
    if hasattr(value, "numpy") and hasattr(value, "permute"):
        raise PictureError(f"{where} is a tensor; give tensor.permute(1, 2, 0).numpy() as uint8 [height, width, 3]")
    raise PictureError(f"{where} is {show(value)}, of type {type(value).__name__}; {_WANTED}")


def _open(value: Mapping[str, Any], where: str) -> Any:
    for key in KEYS:
        if (inner := value.get(key)) is not None:
            return _decode_base64(inner, where) if key in ("base64", "data") and isinstance(inner, str) else inner
    keys = ", ".join(map(repr, list(value)[:8])) or "no keys"
    raise PictureError(f"{where} is a dict with {keys} and no picture; put it under 'image', 'bytes' or 'path'")


def _read_array(array: np.ndarray[Any, Any], where: str) -> Pixels:
    shape = tuple(array.shape)
    if array.dtype != np.uint8:
        remedy = "round it to 0..255 and convert it to uint8"
        raise PictureError(f"{where} is an array of {array.dtype}, whose range is not known; {remedy}")
    if len(shape) == 3 and shape[2] not in (1, 3, 4) and shape[0] in (1, 3, 4):
        raise PictureError(f"{where} is an array of shape {shape}, channels first; give array.transpose(1, 2, 0)")
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        raise PictureError(f"{where} is an array of shape {shape}; give [height, width, 3]")
    check_size(shape[1], shape[0], where)
    if shape[2:] == (3,):
        return array
    return convert(Image.fromarray(array[..., 0] if shape[2:] == (1,) else array), where)


def _read_text(text: str, where: str, label: str, folder: Path | None) -> ImagePart:
    scheme = text[:40].partition(":")[0].lower() if ":" in text[:40] else ""
    if scheme == "data":
        return to_part(decode(_read_data_url(text, where), where), label=label)
    if scheme == "file":
        address = urlsplit(text)
        if address.netloc not in ("", "localhost"):
            raise PictureError(f"{where} is {show(text)}, a file of another machine; give file:///path")
        return _read_file(Path(unquote(address.path)), where, label, folder)
    if "://" in text[:40]:
        raise PictureError(
            f"{where} is the address {show(text)}, and nothing is downloaded; save the picture and give its path"
        )
    return _read_file(Path(text), where, label, folder)


def _read_data_url(text: str, where: str) -> bytes:
    header, comma, data = text.partition(",")
    if not comma or not header.lower().replace(" ", "").endswith(";base64"):
        raise PictureError(f"{where} is {show(text)}; a data URL starts with data:image/png;base64, and has base64")
    return _decode_base64(unquote_to_bytes(data).decode("ascii", "replace"), where)


def _decode_base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as cause:
        raise PictureError(f"{where} is no base64 ({cause}); encode the whole file with base64.b64encode") from None


def _read_file(path: Path, where: str, label: str, folder: Path | None) -> ImagePart:
    path = path if folder is None else folder / path
    name = repr(str(path)) if len(str(path)) <= LONGEST_PATH else show(str(path))
    try:
        is_file, exists = path.is_file(), path.exists()
    except (OSError, ValueError):  # a name that is too long or has a zero byte: base64 without its header, mostly
        is_file = exists = False
    if not exists:
        remedy = "check the path; base64 needs data:image/png;base64, before it"
        raise PictureError(f"{where}: there is no file {name}; {remedy}")
    if not is_file:
        raise PictureError(f"{where}: {name} is no regular file; give the path of a picture")
    return to_part(load_file(path, f"{where}: {name}"), label=label or path.name)
