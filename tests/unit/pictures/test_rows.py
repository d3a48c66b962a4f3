"""Pictures of rows are shown where the row's layout says; rows whose pictures and places do not fit are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

from turnwise.core.errors import DataError, PictureError
from turnwise.core.messages import ImagePart, Part, TextPart, join_texts
from turnwise.environments.classes.contract import read_messages
from turnwise.pictures.pixels import to_data_url, to_part, to_png
from turnwise.pictures.rows import MARKER, RowPictures, from_plain, to_plain

A, B = (to_part(np.full((2, 3, 3), shade, np.uint8)) for shade in (10, 20))
HOLE = {"type": "image"}
WORDS = {"type": "text", "text": "Which?"}
SPELLED = {"type": "text", "text": "What is <image>?"}
URL = to_data_url(A)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(to_png(A))
    (tmp_path / "b.png").write_bytes(to_png(B))
    return tmp_path


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # TRL: parts that stand for the pictures of a column, with the nulls that Parquet adds
        ({"prompt": [user([HOLE, WORDS])], "images": ["pictures/a.png"]}, [[A, WORDS]]),
        (
            {"prompt": [user([{**HOLE, "text": None}, {**WORDS, "image": None}, HOLE])], "images": [A, B]},
            [[A, {**WORDS, "image": None}, B]],
        ),
        # TRL: no place in the prompt
        ({"prompt": [{"role": "system", "content": "s"}, user("Which?")], "images": [A, B]}, ["s", [A, B, "Which?"]]),
        ({"prompt": "Which?", "image": Image.new("RGB", (3, 2), (10, 10, 10))}, [A, "Which?"]),
        # verl: marks in the text, bytes in the column
        (
            {"prompt": [user("<image>One,<image> two")], "images": [{"bytes": to_png(A), "path": None}, to_png(B)]},
            [[A, "One,", B, " two"]],
        ),
        ({"prompt": "<image>", "images": ["b.png"]}, [B]),
        ({"prompt": "<image>", "images": {"bytes": to_png(B), "path": None}}, [B]),
        # chat APIs: pictures in the prompt itself
        (
            {"prompt": [user([{"type": "image_url", "image_url": {"url": URL}}, WORDS, {**HOLE, "path": "b.png"}])]},
            [[A, WORDS, B]],
        ),
        # both: parts with a picture in them are no places
        ({"prompt": [user([{"type": "image", "image": "b.png"}, HOLE])], "images": [A]}, [[B, A]]),
        # a picture that is shown twice
        ({"prompt": [user([HOLE, HOLE])], "images": [A, A]}, [[A, A]]),
        # text that spells the mark
        ({"prompt": [user([HOLE, SPELLED])], "images": [A]}, [[A, SPELLED]]),
        ({"prompt": "What is <image>?", "images": []}, "What is <image>?"),
        ({"prompt": "What is <image>?"}, "What is <image>?"),
        ({"prompt": "Start it.", "image": "ubuntu:24.04"}, "Start it."),
        # ShareGPT
        ({"prompt": [{"from": "human", "value": "<image>Which?"}], "images": [A]}, [[A, "Which?"]]),
    ],
)
def test_pictures_are_shown_at_their_places(row: dict[str, Any], expected: Any, folder: Path) -> None:
    pictures = RowPictures()
    taken = pictures.take(row, ("prompt",), folder)
    prompt = taken["prompt"]
    is_messages = isinstance(prompt, list) and isinstance(prompt[0], dict)
    assert ([m.get("content", m.get("value")) for m in prompt] if is_messages else prompt) == expected
    shown = [each for name in ("images", "image") for each in _list(taken.get(name)) if isinstance(each, ImagePart)]
    assert all(each.pixels is None and pictures.find(each).pixels is not None for each in shown)

    plain = to_plain(taken, "prompt")
    assert from_plain(json.loads(json.dumps(plain)), "prompt", lambda part: part) == taken


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (
            {"prompt": [user([HOLE, WORDS])], "images": [A, B]},
            'the row has 2 pictures and its prompt 1 parts {"type": "image"}; write one for each picture',
        ),
        (
            {"prompt": [user([HOLE, WORDS])]},
            'the row has 0 pictures and its prompt 1 parts {"type": "image"}; write one for each picture',
        ),
        (
            {"prompt": "<image><image>", "images": [A]},
            "the row has 1 pictures and its prompt 2 times <image>; write one for each picture",
        ),
        (
            {"prompt": [{"role": "system", "content": "s"}], "images": [A]},
            "the row has 1 pictures and its prompt no user message; add one to show them",
        ),
        (
            {"prompt": "Which?", "images": ["b.png", "gone.png"]},
            "picture 1 of images: there is no file '{folder}/gone.png'; check the path; base64 needs "
            "data:image/png;base64, before it",
        ),
        ({"prompt": "Which?", "images": [A], "image": A}, 'the row has "images" and also "image"; keep one of them'),
        (
            {"prompt": [user([{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}])]},
            "message 0: part 0 of its content is the address 'https://example.org/a.png', and nothing is downloaded; "
            "save the picture and give its path",
        ),
    ],
)
def test_rows_whose_pictures_cannot_be_shown_are_refused(row: dict[str, Any], line: str, folder: Path) -> None:
    with pytest.raises(DataError) as raised:
        RowPictures().take(row, ("prompt",), folder)
    assert str(raised.value) == line.replace("{folder}", str(folder))


@given(
    st.lists(st.sampled_from([A, B]) | st.text("ab <>", min_size=1, max_size=4).map(lambda text: TextPart(text=text)))
)
def test_both_layouts_show_the_same_message(parts: list[Part]) -> None:
    """Pictures and texts in any order, written as TRL does, as verl does, and with the pictures in the prompt."""
    shown = join_texts(parts)
    assume(shown != (TextPart(text=""),))
    pictures = [part for part in shown if isinstance(part, ImagePart)]
    texts = [part.text if isinstance(part, TextPart) else MARKER for part in shown]
    holes = [{"type": "text", "text": part.text} if isinstance(part, TextPart) else HOLE for part in shown]
    inside = [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": to_data_url(part)}}
        for part in shown
    ]
    for content, column in (("".join(texts), pictures), (holes, pictures), (inside, [])):
        row = {"prompt": [user(content)], "images": column}
        [message] = read_messages(RowPictures().take(row, ("prompt",), None)["prompt"], None, "Shown")
        assert message.content == shown


def test_a_file_that_changes_after_its_row_was_loaded_is_named(folder: Path) -> None:
    pictures = RowPictures()
    part = pictures.take({"images": ["b.png"]}, ("prompt",), folder)["images"][0]
    assert pictures.find(part).pixels == B.pixels
    (folder / "b.png").write_bytes(to_png(A))
    with pytest.raises(PictureError, match="picture 0 of images has changed since its row was loaded; restore it"):
        pictures.find(part)
    (folder / "b.png").unlink()
    with pytest.raises(PictureError, match="picture 0 of images: there is no file"):
        pictures.find(part)
    assert RowPictures().find(part) == part


def test_other_columns_are_left_alone(folder: Path) -> None:
    row = {"prompt": "Go.", "answer": {"type": "image", "digest": "x"}, "images": None}
    assert RowPictures().take(row, ("prompt",), folder) == row
    assert from_plain(row, "prompt", lambda part: part) == row
