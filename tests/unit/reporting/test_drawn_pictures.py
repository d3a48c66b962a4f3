"""Pictures in the report: drawn from the page itself, named where they cannot be drawn."""

import base64
import re
from html import unescape
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from turnwise.core.keys import Span
from turnwise.core.messages import ImagePart, TextPart
from turnwise.core.types import Message, Task
from turnwise.pictures.pixels import to_part
from turnwise.pictures.store import PictureStore
from turnwise.reporting import pictures as module
from turnwise.reporting.examples import Batch, draw_example
from turnwise.reporting.pictures import MAX_SIDE, PictureDrawer, fit
from turnwise.store.trajectories import flatten_groups
from turnwise.testing import make_group, make_trajectory, make_turn

HOSTILE = '"><script>alert(1)</script><img src=x onerror="alert(2)">'


def make_part(width: int, height: int, label: str = "") -> ImagePart:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    return to_part(pixels, label=label)


def store_of(*parts: ImagePart) -> PictureStore:
    store = PictureStore(None)
    for part in parts:
        store.put(part)
    return store


def read_src(drawn: str) -> Image.Image:
    [data] = re.findall(r'src="data:image/png;base64,([^"]*)"', drawn)
    return Image.open(BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize(
    ("size", "drawn"),
    # 96 / 32 = 3 times; 96 / 10 is 10 times when rounded up; above 320 both sides by 320 / 1000.
    [((32, 16), (96, 48)), ((10, 1), (100, 10)), ((96, 8), (96, 8)), ((320, 9), (320, 9)), ((1000, 500), (320, 160))],
)
def test_tiny_pictures_grow_by_whole_numbers_and_large_ones_shrink(
    size: tuple[int, int], drawn: tuple[int, int]
) -> None:
    assert fit(*size) == drawn


def test_a_picture_is_in_the_page_pixel_by_pixel() -> None:
    part = make_part(32, 16, label="a page")
    drawn = PictureDrawer(store_of(part)).draw(part)
    assert read_src(drawn).tobytes() == part.pixels
    assert f'width="96" height="48" alt="[picture 32x16 {part.digest[:12]}] a page"' in drawn
    assert 'class="crisp"' in drawn


def test_a_large_picture_is_scaled_down() -> None:
    part = make_part(700, 350)
    drawn = PictureDrawer(store_of(part)).draw(part)
    assert read_src(drawn).size == (MAX_SIDE, MAX_SIDE // 2)
    assert "crisp" not in drawn


def test_a_label_is_text() -> None:
    part = make_part(2, 2, label=HOSTILE)
    drawn = PictureDrawer(store_of(part)).draw(part)
    assert re.findall(r"<[a-z]+", drawn) == ["<img"]
    assert unescape(re.findall(r'alt="([^"]*)"', drawn)[0]).endswith(HOSTILE)


def test_a_missing_picture_is_named() -> None:
    part = make_part(4, 3)
    drawn = PictureDrawer(PictureStore(None)).draw(part)
    assert "<img" not in drawn
    assert f"[picture 4x3 {part.digest[:12]}] cannot be shown" in drawn
    assert "is missing from" in drawn


def test_pictures_beyond_the_limit_of_a_page_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [make_part(8, 8), make_part(9, 8)]
    drawer = PictureDrawer(store_of(*parts))
    one = len(re.findall(r'src="([^"]*)"', drawer.draw(parts[0]))[0])
    monkeypatch.setattr(module, "MAX_BYTES", one)
    drawer = PictureDrawer(store_of(*parts))
    assert [drawer.draw(part).startswith("<img") for part in (parts[0], parts[1], parts[0])] == [True, False, False]


def test_an_example_has_pictures_where_the_prompt_shows_them() -> None:
    part = make_part(4, 4)
    span = Span(start=1, length=2, digest=part.digest)
    prompt = Message(role="user", content=(TextPart(text="a"), part, TextPart(text="b")))
    task = Task(environment="e", prompt=(prompt,), payload={})
    trajectory = make_trajectory(make_turn([1, 9, 9, 2], [3], images=(span,)), task_id=task.id)
    arrays, rows = flatten_groups(
        [make_group(trajectory, task=task)], decode=lambda ids: "".join(chr(96 + i) for i in ids), with_pieces=True
    )
    batch = Batch(label="after", rows=rows, arrays=arrays, drawer=PictureDrawer(store_of(part)))
    page = draw_example("still wrong", (rows, batch), (rows, batch))
    assert len(re.findall(r'title="prompt">a<img src="data:image/png;base64,[^>]*>b</span>', page)) == 2
    assert "[picture 4x4" in page
