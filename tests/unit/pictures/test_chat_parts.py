"""Pictures in the content parts of chat APIs."""

import base64

import numpy as np
import pytest

from turnwise.core.errors import PictureError, StoreError
from turnwise.core.messages import Part, TextPart, without_pixels
from turnwise.core.types import Message
from turnwise.pictures.chat_parts import embed, write_anthropic_content, write_content
from turnwise.pictures.pixels import to_part
from turnwise.pictures.read import read_picture
from turnwise.pictures.store import PictureStore

PART = to_part(np.arange(24, dtype=np.uint8).reshape(2, 4, 3), label="a name")
PARTS: tuple[Part, ...] = (TextPart(text="see "), PART, TextPart(text=" there"))
[_, KNOWN, _] = without_pixels(Message(role="user", content=PARTS)).content


def test_text_alone_is_text() -> None:
    parts = (TextPart(text="a"), TextPart(text="b"))
    assert write_content(parts, embed(None)) == write_anthropic_content(parts, None) == "ab"


def test_a_picture_is_a_data_url_that_reads_as_the_same_pixels() -> None:
    content = write_content(PARTS, embed(None))
    assert isinstance(content, list)
    before, shown, after = content
    assert (before, after) == ({"type": "text", "text": "see "}, {"type": "text", "text": " there"})
    assert shown["type"] == "image_url"
    assert read_picture(shown["image_url"]["url"]) == PART


def test_an_empty_text_beside_a_picture_is_left_out() -> None:
    content = write_anthropic_content((TextPart(text=""), PART), None)
    assert isinstance(content, list)
    assert [part["type"] for part in content] == ["image"]


def test_anthropic_takes_base64_and_its_type() -> None:
    content = write_anthropic_content(PARTS, None)
    assert isinstance(content, list)
    _, shown, _ = content
    assert shown["source"].keys() == {"type", "media_type", "data"}
    assert (shown["type"], shown["source"]["type"], shown["source"]["media_type"]) == ("image", "base64", "image/png")
    assert read_picture(base64.b64decode(shown["source"]["data"])) == PART


def test_a_picture_known_by_digest_comes_from_the_store() -> None:
    store = PictureStore(None)
    with pytest.raises(StoreError, match=PART.digest):
        write_content((KNOWN,), embed(store))
    store.put(PART)
    assert write_content((KNOWN,), embed(store)) == write_content((PART,), embed(None))
    with pytest.raises(PictureError, match="has no pixels with it"):
        write_content((KNOWN,), embed(None))
