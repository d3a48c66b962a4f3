"""Crops are cut where they say; a model's box is clamped, widened or refused with a message for the model."""

import math
from fnmatch import fnmatchcase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import PictureError, StoreError, ToolFailure
from turnwise.pictures.crop import Crop, crop, cut_again, read_box, read_crop, zoom
from turnwise.pictures.pixels import to_part, to_pixels
from turnwise.pictures.store import PictureStore

PAGE = to_part(np.random.default_rng(0).integers(0, 256, (60, 100, 3), np.uint8))


def test_a_crop_is_the_piece_and_says_where_it_is_from() -> None:
    piece = crop(PAGE, (10, 20, 40, 25))
    assert (piece.width, piece.height) == (30, 5)
    assert to_pixels(piece).tolist() == to_pixels(PAGE)[20:25, 10:40].tolist()
    assert piece.label == f"crop of {PAGE.digest} at 10,20,40,25"
    assert crop(to_pixels(PAGE), (10, 20, 40, 25)) == piece
    assert crop(PAGE, (10, 20, 40, 25), (30, 5)) == piece
    scaled = crop(PAGE, (0, 0, 2, 2), (4, 6))
    assert (scaled.width, scaled.height, scaled.label) == (4, 6, f"crop of {PAGE.digest} at 0,0,2,2 as 4x6")


@given(
    st.text("0123456789abcdef", min_size=64, max_size=64),
    st.tuples(*[st.integers(0, 99999)] * 4),
    st.none() | st.tuples(st.integers(1, 999), st.integers(1, 999)),
)
def test_labels_of_crops_are_read_back(source: str, box: tuple[int, int, int, int], size: tuple[int, int]) -> None:
    made = Crop(source=source, box=box, size=size)
    assert read_crop(str(made)) == made
    for other in (f"{made} ", f"a {made}", str(made)[:-80]):
        assert read_crop(other) is None


def test_a_crop_is_cut_again_from_the_store() -> None:
    store = PictureStore(None)
    store.put(PAGE)
    piece = crop(PAGE, (3, 4, 50, 60), (28, 28))
    made = read_crop(piece.label)
    assert made is not None
    assert cut_again(made, store) == piece
    other = Crop(source=made.source, box=(4, 4, 50, 60), size=made.size)
    assert cut_again(other, store) != piece
    with pytest.raises(PictureError, match="not inside a picture of 100 x 60 pixels"):
        cut_again(Crop(source=made.source, box=(0, 0, 101, 5)), store)
    with pytest.raises(StoreError, match="is missing"):
        cut_again(Crop(source="0" * 64, box=(0, 0, 1, 1)), store)


def test_boxes_in_whole_pixels() -> None:
    for given_box, expected in {
        (10, 10, 50, 50): (10, 10, 50, 50),
        (10.4, 10.6, 49.2, 49.9): (10, 10, 50, 50),  # outwards
        (-20, -5, 500, 500): (0, 0, 100, 60),  # clamped
        (40, 20, 50, 50): (31, 20, 59, 50),  # 10 wide: 18 more, 9 on each side
        (0, 0, 10, 10): (0, 0, 28, 28),  # widened, kept inside
        (95, 55, 100, 60): (72, 32, 100, 60),
    }.items():
        assert read_box(given_box, 100, 60) == expected
        assert read_box(str(list(given_box)), 100, 60) == expected
    assert read_box([0, 0, 5, 5], 10, 10) == (0, 0, 10, 10)  # a picture of 10 pixels has no 28
    assert read_box([500, 500, 1000, 1000], 100, 60, out_of=1000) == (50, 30, 100, 60)
    assert read_box([1, 1, 2, 2], 100, 60, min_side=1) == (1, 1, 2, 2)


NOT_FOUR = "bbox_2d must be four numbers [left, top, right, bottom], not "
REVERSED = "bbox_2d must be [left, top, right, bottom] with left < right and top < bottom"
WRONG_BOXES = [
    ("[1, 2, 3", NOT_FOUR + "'[1, 2, 3'"),
    ("[1, 2, 3]", NOT_FOUR + "'[1, 2, 3]'"),
    ("[NaN, 0, 10, 10]", NOT_FOUR + "'[NaN, 0, 10, 10]'"),
    ([math.nan, 0, 10, 10], NOT_FOUR + "[nan, 0, 10, 10]"),
    ([0, 0, math.inf, 10], NOT_FOUR + "[0, 0, inf, 10]"),
    ([0, 0, 10**400, 10], NOT_FOUR + "[0, 0, *"),
    ([True, 0, 10, 10], NOT_FOUR + "[True, 0, 10, 10]"),
    (["1", "2", "3", "4"], NOT_FOUR + "['1', '2', '3', '4']"),
    ([[1, 2], [3, 4]], NOT_FOUR + "[[1, 2], [3, 4]]"),
    ({"x1": 1}, NOT_FOUR + "{'x1': 1}"),
    (None, NOT_FOUR + "None"),
    ("[" * 100_000, NOT_FOUR + "'[[*"),
    ([50, 10, 10, 40], REVERSED),
    ([10, 10, 10, 40], REVERSED),
    ([200, 10, 300, 40], "bbox_2d is outside the image, which has 100 x 60 pixels"),
    ([-9, -9, -1, -1], "bbox_2d is outside the image, which has 100 x 60 pixels"),
    ([0, 0, 100, 0.5], "bbox_2d is more than 100 times as long as it is wide; choose a less narrow box"),
]


@pytest.mark.parametrize(("box", "message"), WRONG_BOXES, ids=range(len(WRONG_BOXES)))
def test_wrong_boxes_are_told_to_the_model(box: object, message: str) -> None:
    with pytest.raises(ToolFailure) as raised:
        zoom(PAGE, box)
    assert fnmatchcase(str(raised.value), message.replace("[", "[[]"))
    assert len(str(raised.value)) < 250


@given(st.lists(st.integers(-50, 150) | st.floats(), min_size=4, max_size=4), st.integers(1, 200), st.integers(1, 200))
def test_every_box_that_is_taken_lies_in_the_picture(box: list[float], width: int, height: int) -> None:
    try:
        left, top, right, bottom = read_box(box, width, height)
    except ToolFailure:
        return
    for start, end, side, asked, until in ((left, right, width, *box[::2]), (top, bottom, height, *box[1::2])):
        assert 0 <= start <= max(asked, 0)
        assert min(until, side) <= end <= side
        assert end - start >= min(28, side)
