"""Pictures from everywhere are upright 8-bit RGB; what cannot be one is refused in one line."""

import base64
import json
import struct
import warnings
import zlib
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from turnwise.core.errors import DataError, PictureError
from turnwise.core.messages import ImagePart, hash_pixels
from turnwise.pictures.pixels import to_data_url, to_part, to_pixels, to_png
from turnwise.pictures.read import read_picture

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10
"""Two rows of three pixels."""
PNG = to_png(PIXELS)
PART = to_part(PIXELS)


def encode(image: Image.Image, kind: str, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, format=kind, **options)
    return file.getvalue()


def write_header(width: int, height: int) -> bytes:
    """A PNG that says it has this size and ends there."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_a_part_has_the_rgb_bytes_and_their_digest() -> None:
    part = read_picture(PIXELS, label="two rows")
    assert (part.width, part.height, part.label) == (3, 2, "two rows")
    assert part.pixels == bytes(range(0, 180, 10))
    assert part.digest == hash_pixels(part.pixels, 3, 2)
    assert to_pixels(part).tolist() == PIXELS.tolist()


@given(arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 5), st.just(3))))
def test_every_form_of_a_picture_gives_equal_parts(pixels: np.ndarray) -> None:
    png = to_png(pixels)
    url = to_data_url(pixels)
    encoded = base64.b64encode(png).decode()
    forms = [
        *(Image.fromarray(pixels), png, bytearray(png), memoryview(png), url, to_part(pixels)),
        {"bytes": png, "path": None},
        {"bytes": png, "path": "not/looked/at.png"},
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
        {"type": "image_url", "image_url": url},
        {"type": "input_image", "image_url": url},
        {"type": "image", "image": Image.fromarray(pixels)},
        {"type": "image", "image": {"bytes": png, "path": None}},
        {"type": "image", "base64": encoded},
        {"type": "image", "data": encoded, "mimeType": "image/png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded}},
        encode(Image.fromarray(pixels), "BMP"),
        encode(Image.fromarray(pixels), "WEBP", lossless=True),
    ]
    assert {read_picture(form) for form in forms} == {to_part(pixels)}
    assert json.loads(json.dumps(url)) == url


def test_files_are_read_by_path_address_and_name_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(PNG)
    for value in (tmp_path / "a b.png", str(tmp_path / "a b.png"), f"file://{tmp_path}/a%20b.png"):
        assert read_picture(value) == PART
        assert read_picture(value).label == "a b.png"
    assert read_picture("a b.png", folder=tmp_path, label="left") == PART
    assert read_picture({"bytes": None, "path": "a b.png"}, folder=tmp_path, label="left").label == "left"


def test_a_jpeg_with_the_name_of_a_png_is_read_by_its_content(tmp_path: Path) -> None:
    grey = Image.new("RGB", (8, 8), (128, 128, 128))
    (tmp_path / "photo.png").write_bytes(encode(grey, "JPEG"))
    assert read_picture(tmp_path / "photo.png") == read_picture(grey)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_rotation_of_exif_is_applied(orientation: int) -> None:
    # The tag says where the stored row 0 and column 0 are shown, so the stored picture is the shown one turned back.
    shown = np.zeros((16, 24, 3), np.uint8)
    shown[:8, :8] = 255  # a white square in the upper left corner
    stored = {
        1: shown,
        2: shown[:, ::-1],
        3: shown[::-1, ::-1],
        4: shown[::-1],
        5: shown.transpose(1, 0, 2),
        6: np.rot90(shown),
        7: shown[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(shown, -1),
    }[orientation]
    image = Image.fromarray(np.ascontiguousarray(stored))
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert to_pixels(read_picture(encode(image, "PNG", exif=exif))).tolist() == shown.tolist()
    opened = Image.open(BytesIO(encode(image, "JPEG", exif=exif, quality=100, subsampling=0)))
    pixels = to_pixels(read_picture(opened)).astype(int)
    assert np.abs(pixels - shown).max() <= 2


def test_transparency_is_laid_on_white() -> None:
    rgba = np.array([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 0, 0, 128]]], np.uint8)
    # 0 * 128/255 + 255 * 127/255 = 127
    expected = [[[10, 20, 30], [255, 255, 255], [127, 127, 127]]]
    assert to_pixels(read_picture(rgba)).tolist() == expected
    assert to_pixels(read_picture(encode(Image.fromarray(rgba), "PNG"))).tolist() == expected
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putdata([0, 1])
    assert to_pixels(read_picture(encode(palette, "PNG", transparency=1))).tolist() == [[[10, 20, 30], [255] * 3]]
    assert to_pixels(read_picture(encode(palette, "GIF", transparency=0))).tolist() == [[[255] * 3, [40, 50, 60]]]
    # 40 * 128/255 + 255 * 127/255 = 147.1, and 10 more of green or blue give 5 more
    half = to_pixels(read_picture(encode(palette, "PNG", transparency=b"\x00\x80")))
    assert half.tolist() == [[[255] * 3, [147, 152, 157]]]
    grey = Image.fromarray(np.array([[0, 200]], np.uint8))
    assert to_pixels(read_picture(encode(grey, "PNG", transparency=0))).tolist() == [[[255] * 3, [200] * 3]]
    colour = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    assert to_pixels(read_picture(encode(colour, "PNG", transparency=(1, 2, 3)))).tolist() == [[[255] * 3, [4, 5, 6]]]
    faint = Image.fromarray(np.array([[[7, 0], [7, 255]]], np.uint8), "LA")
    assert to_pixels(read_picture(faint)).tolist() == [[[255] * 3, [7] * 3]]


def test_other_modes_are_converted() -> None:
    cmyk = Image.new("CMYK", (1, 1), (0, 255, 255, 0))  # no cyan, all magenta and yellow: red
    assert to_pixels(read_picture(cmyk)).tolist() == [[[255, 0, 0]]]
    jpeg = to_pixels(read_picture(encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"))).astype(int)
    assert np.abs(jpeg - [255, 0, 0]).max() <= 2
    assert to_pixels(read_picture(np.array([[0, 200]], np.uint8))).tolist() == [[[0] * 3, [200] * 3]]
    assert to_pixels(read_picture(np.array([[[5]]], np.uint8))).tolist() == [[[5] * 3]]
    assert to_pixels(read_picture(Image.new("1", (1, 1), 1))).tolist() == [[[255] * 3]]
    deep = np.array([[0, 255, 256, 0xABCD, 65535]], np.uint16)  # high bytes: 0, 0, 1, 0xAB, 255
    for image in (Image.fromarray(deep), Image.open(BytesIO(encode(Image.fromarray(deep), "PNG")))):
        assert to_pixels(read_picture(image))[0, :, 0].tolist() == [0, 0, 1, 0xAB, 255]


NOISY = encode(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)), "JPEG")
FRAMES = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
GIF = encode(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:])
EPS = encode(FRAMES[0], "EPS")
ONE_FRAME = "is animated; give one frame: image.seek(number), then image.copy(), for each that is wanted"
WHOLE = "cannot be decoded; give a whole, undamaged picture: "
OTHER = "is no picture that can be read; give PNG, JPEG, WebP, GIF or BMP, undamaged"
WANTED = (
    "give a path, a data URL, the bytes of a file, {'bytes': ..., 'path': ...}, a uint8 array [height, width, 3] or a "
    "Pillow image"
)
REFUSED = {
    "truncated JPEG": (NOISY[:-300], WHOLE + "OSError: image file is truncated*"),
    "truncated PNG": (PNG[:-30], WHOLE + "OSError: *"),
    "empty": (b"", "is empty; give a whole file"),
    "no pixels": (np.zeros((0, 4, 3), np.uint8), "has 4 x 0 pixels; give one with at least one pixel"),
    "no pixels in a header": (write_header(0, 5), "*"),
    "wide": (write_header(20_000, 10), "has 20,000 x 10 pixels; make it at most 16,384 pixels wide and high"),
    "many pixels": (
        write_header(9_000, 9_000),
        "has 9,000 x 9,000 pixels; make it smaller, to at most 67,108,864 pixels in all",
    ),
    "bomb": (write_header(50_000, 50_000), "has too many pixels; make it at most 67,108,864 in all"),
    "animated GIF": (GIF, ONE_FRAME),
    "animated WebP": (encode(FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:]), ONE_FRAME),
    "animated PNG": (encode(FRAMES[0], "PNG", save_all=True, append_images=FRAMES[1:]), ONE_FRAME),
    "animated image": (Image.open(BytesIO(GIF)), ONE_FRAME),
    "a program": (EPS, OTHER),
    "no picture": (b"<svg></svg>", OTHER),
    "http": (
        "https://example.org/cat.png",
        "is the address 'https://example.org/cat.png', and nothing is downloaded; save the picture and give its path",
    ),
    "http in a part": (
        {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}},
        "is the address 'http://example.org/a.png', and nothing is downloaded; save the picture and give its path",
    ),
    "float array": (
        np.zeros((2, 2, 3)),
        "is an array of float64, whose range is not known; round it to 0..255 and convert it to uint8",
    ),
    "channels first": (
        np.zeros((3, 5, 6), np.uint8),
        "is an array of shape (3, 5, 6), channels first; give array.transpose(1, 2, 0)",
    ),
    "two channels": (np.zeros((5, 6, 2), np.uint8), "is an array of shape (5, 6, 2); give [height, width, 3]"),
    "float image": (
        Image.new("F", (1, 1)),
        "has pixels of Pillow's mode 'F', whose range is not known; scale them to 0..255 and convert them to 'L'",
    ),
    "None": (None, "is None, of type NoneType; " + WANTED),
    "a number": (7, "is 7, of type int; " + WANTED),
    "placeholder": (
        {"type": "image"},
        "is a dict with 'type' and no picture; put it under 'image', 'bytes' or 'path'",
    ),
    "empty cell": (
        {"bytes": None, "path": None},
        "is a dict with 'bytes', 'path' and no picture; put it under 'image', 'bytes' or 'path'",
    ),
    "plain data URL": (
        "data:image/svg+xml,<svg/>",
        "is 'data:image/svg+xml,<svg/>'; a data URL starts with data:image/png;base64, and has base64",
    ),
    "cut base64": (
        "data:image/png;base64,iVBORw0KGgo",
        "is no base64 (Incorrect padding); encode the whole file with base64.b64encode",
    ),
    "other digest": (
        ImagePart(digest="0" * 64, width=3, height=2, pixels=PIXELS.tobytes()),
        "is a picture whose pixels differ from its digest 000000000000...; build it with read_picture",
    ),
    "other size": (
        ImagePart(digest="0" * 64, width=3, height=3, pixels=PIXELS.tobytes()),
        "is a picture of 3 x 3 pixels with 18 bytes, not 27; build it with read_picture",
    ),
}


def check_line(error: PictureError, expected: str) -> None:
    """`expected` is the whole line, or its start where it ends with *."""
    line = str(error)
    assert "\n" not in line
    assert fnmatchcase(line, expected.replace("[", "[[]"))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("strict", [False, True], ids=["", "warnings are errors"])
def test_what_is_no_picture_is_refused_in_one_line(name: str, strict: bool) -> None:
    value, problem = REFUSED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error" if strict else "ignore")
        with pytest.raises(PictureError) as raised:
            read_picture(value, where="row 3 of a.jsonl, picture 1")
    check_line(raised.value, f"row 3 of a.jsonl, picture 1 {problem}")
    assert isinstance(raised.value, DataError)


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    for value, problem in {
        "cat.png": ": there is no file 'cat.png'; check the path; base64 needs data:image/png;base64, before it",
        base64.b64encode(PNG * 50).decode(): ": there is no file '*",
        "a\0b": ": there is no file '*",
        tmp_path: f": {str(tmp_path)!r} is no regular file; give the path of a picture",
        Path("/dev/zero"): ": '/dev/zero' is no regular file; give the path of a picture",
        "file://elsewhere/a.png": " is 'file://elsewhere/a.png', a file of another machine; give file:///path",
    }.items():
        with pytest.raises(PictureError) as raised:
            read_picture(value)
        check_line(raised.value, f"the picture{problem}")
    (tmp_path / "cut.png").write_bytes(PNG[:-30])
    with pytest.raises(PictureError, match=r"the picture: '.*cut\.png' cannot be decoded"):
        read_picture(tmp_path / "cut.png")


@given(st.binary(max_size=300), st.integers(0, len(PNG)))
def test_random_bytes_give_a_picture_or_a_picture_error(noise: bytes, cut: int) -> None:
    for content in (noise, PNG[:cut] + noise, GIF[:cut] + noise):
        try:
            part = read_picture(content)
        except PictureError as problem:
            check_line(problem, "the picture*")
        else:
            assert hash_pixels(part.pixels or b"", part.width, part.height) == part.digest
