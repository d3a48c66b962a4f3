"""Parts of requests that are pictures. Nothing is fetched, and no file is opened for a client."""

from __future__ import annotations

import base64
import binascii

from turnwise.core.errors import PictureError, StoreError
from turnwise.core.messages import ImagePart
from turnwise.gateway.protocols.fields import Fields
from turnwise.gateway.refusals import Refusal

IMAGE_PARTS = ("image_url", "input_image", "image")
"""Types of parts with a picture: of Chat Completions, of Responses and of Messages."""


def read_image(part: Fields) -> ImagePart:
    """Return the picture of a part of one of `IMAGE_PARTS`. Raises Refusal, also if the policy reads text."""
    if part.pictures is None:
        raise part.refuse("type", f"is {part.text('type')!r}; the policy reads text")
    if part.get("file_id") is not None:
        raise part.refuse("file_id", "names a file that is not here; send the picture as a data URL in image_url")
    key = "source" if part.get("type") == "image" else "image_url"
    picture = _open_source(part) if key == "source" else _open_url(part)
    try:
        return part.pictures.read(picture)
    except PictureError as cause:
        raise part.refuse(key, f"is no picture that can be read: {cause}") from None
    except StoreError as cause:
        raise Refusal(str(cause), status=500, field=part.name(key), code="store_error") from cause


def _open_url(part: Fields) -> str:
    """Return the data URL of a part: a text, or an object with the text as its url."""
    owner, key = (part.object("image_url"), "url") if isinstance(part.get("image_url"), dict) else (part, "image_url")
    url = owner.text(key)
    if not url[:5].lower().startswith("data:"):
        raise owner.refuse(key, "is no data URL, and nothing is fetched; send data:image/png;base64, and the picture")
    return url


def _open_source(part: Fields) -> bytes:
    """Return the encoded picture of a block's source."""
    source = part.object("source")
    if (kind := source.text("type")) != "base64":
        raise source.refuse("type", f"is {kind!r}, and nothing is fetched; send the picture as base64")
    try:
        return base64.b64decode("".join(source.text("data").split()), validate=True)
    except (binascii.Error, ValueError) as cause:
        raise source.refuse("data", f"is no base64 ({cause}); encode the whole file") from None
