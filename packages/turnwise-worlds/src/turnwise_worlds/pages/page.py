"""What a page shows: its digits, its marks, and how it is cut into pictures. Pure functions of a seed.

A page is a square of cells of `CELL` pixels: a coloured frame around a grey box with a digit. A picture is always
`CELL` pixels wide: it shows a square of 1, `SIDE` or `SIDE**2` cells a side, averaged down. Digits are hatched with two
shades whose mean is the box's, so that averaging over 4 x 4 pixels erases them exactly: a picture of several cells
shows the colours and nothing of the digits. A "plain" page is a single cell, enlarged until the overview shows its
digit.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnwise.core.pictures import Pixels
from turnwise.core.seeds import derive_seed

Kind = Literal["read", "compare", "nested", "plain"]

CELL = 32
"""Pixels a side of a cell, and of every picture."""
SIDE = 4
"""Parts a side into which a zoom divides a picture."""
DIGITS = 10
FRAME = 8
"""Pixels a side of the frame."""
_DOWN, _RIGHT = (0, 2), (0, 2, 4, 6)
"""Where a digit of 14 x 10 pixels may be in its box; even, as hatching is erased in blocks of 2 x 2."""
_INK = 100
"""How far the two shades of a stroke are from the box."""
GREY = 128
"""The box, and the frame of a cell without a colour."""
_SHADES = (-8, -4, 0, 4, 8)
"""Added to the colour of a frame: no two overviews are alike."""
RED = (232, 32, 32)
"""The frame of a marked cell."""
DECOYS = ((32, 208, 32), (32, 56, 232), (232, 216, 32))
"""The frames of green, blue and yellow cells, which mean nothing."""

_SHAPES = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111",
    "11111 00010 00100 00010 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
"""The digits in rows of five points."""
_POINT = np.array([[-_INK, _INK], [_INK, -_INK]], np.int16)
"""A point of a stroke, relative to the box: its mean is 0."""
_GLYPHS = np.stack(
    [np.kron(np.array([[int(point) for point in row] for row in shape.split()], np.int16), _POINT) for shape in _SHAPES]
)
"""`[10, 14, 10]`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Page:
    """A page."""

    kind: Kind
    digits: np.ndarray
    """`[side, side]` of 0 to 9."""
    marked: tuple[tuple[int, int], ...]
    """Rows and columns of red cells, counted from 0; () on a plain page, whose only cell is large."""
    decoys: tuple[tuple[int, int], ...]
    """Rows and columns of cells of the colours `DECOYS`; () on a plain page."""
    offsets: np.ndarray
    """`[side, side, 2]` pixels from the top left of a box to its digit."""
    shades: np.ndarray
    """`[side, side]` added to the frame of each cell."""

    @property
    def side(self) -> int:
        """Cells a side."""
        return len(self.digits)

    @property
    def answer(self) -> int:
        """The digit that is asked for: the marked one, the larger of two, or the only one."""
        return max(int(self.digits[place]) for place in self.marked or ((0, 0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A square of cells of a page: what one picture shows."""

    row: int = 0
    column: int = 0
    side: int

    def divide(self, row: int, column: int) -> Area:
        """Return one of the `SIDE * SIDE` parts, counted from 0."""
        side = self.side // SIDE
        return Area(row=self.row + row * side, column=self.column + column * side, side=side)

    def find(self, cell: tuple[int, int]) -> tuple[int, int]:
        """Return the row and the column of the part that contains a cell of this area."""
        side = self.side // SIDE
        return (cell[0] - self.row) // side, (cell[1] - self.column) // side

    def contains(self, cell: tuple[int, int]) -> bool:
        """Return whether a cell lies in this area."""
        return all(0 <= at - start < self.side for at, start in zip(cell, (self.row, self.column), strict=True))


def make_page(kind: Kind, seed: int) -> Page:
    """Make the page of a seed."""
    random = np.random.Generator(np.random.Philox(key=derive_seed(seed, "page", kind)))
    side = {"plain": 1, "read": SIDE, "compare": SIDE, "nested": SIDE * SIDE}[kind]
    digits = random.integers(DIGITS, size=(side, side))
    count = {"plain": 0, "compare": 2}.get(kind, 1)
    coloured = 0 if kind == "plain" else count + len(DECOYS)
    places = [divmod(int(place), side) for place in random.choice(side * side, size=coloured, replace=False)]
    if count == 2:
        digits[places[0]], digits[places[1]] = random.choice(DIGITS, size=2, replace=False)
    offsets = np.stack([random.choice(steps, size=(side, side)) for steps in (_DOWN, _RIGHT)], axis=2)
    shades = random.choice(_SHADES, size=(side, side))
    return Page(
        kind=kind,
        digits=digits,
        marked=tuple(sorted(places[:count])),
        decoys=tuple(places[count:]),
        offsets=offsets,
        shades=shades,
    )


def draw(page: Page, area: Area) -> Pixels:
    """Draw an area as a picture of `CELL x CELL` pixels.

    Of several cells only the frames are drawn, since averaging erases their digits exactly.
    """
    rows, columns = (slice(start, start + area.side) for start in (area.row, area.column))
    frames = np.full((area.side, area.side, 3), GREY, np.int16)
    for cell, colour in (*((cell, RED) for cell in page.marked), *zip(page.decoys, DECOYS, strict=False)):
        if area.contains(cell):
            frames[cell[0] - area.row, cell[1] - area.column] = colour
    frames += page.shades[rows, columns, None].astype(np.int16)
    if area.side > SIDE:  # one pixel for each quarter of a cell: a quarter of it is of the box
        boxed = (3 * frames + GREY) // 4
        return _enlarge(boxed, CELL // area.side).astype(np.uint8)
    size = CELL // area.side
    picture = _enlarge(frames, size)
    place = np.arange(CELL) % size
    inside = (place >= size // 4) & (place < size - size // 4)
    picture[np.ix_(inside, inside)] = GREY
    if area.side == 1:
        cell = area.row, area.column
        down, right = page.offsets[cell] + FRAME
        picture[down : down + 14, right : right + 10] += _GLYPHS[page.digits[cell], :, :, None]
    return picture.astype(np.uint8)


def _enlarge(colours: np.ndarray, times: int) -> np.ndarray:
    return np.repeat(np.repeat(colours, times, 0), times, 1)


def grey() -> Pixels:
    """Return a picture that shows nothing. It is not black: some models take black pictures for padding."""
    return np.full((CELL, CELL, 3), GREY, np.uint8)


def read_digit(picture: Pixels) -> int | None:
    """Return the digit that a picture of one cell shows; None if it shows none."""
    return _READINGS.get(picture[FRAME:-FRAME, FRAME:-FRAME, 0].tobytes())


def _list_readings() -> dict[bytes, int]:
    """Return the digit by the pixels of every box that can be drawn."""
    readings = {}
    for digit, down, right in itertools.product(range(DIGITS), _DOWN, _RIGHT):
        box = np.full((CELL - 2 * FRAME, CELL - 2 * FRAME), GREY, np.int16)
        box[down : down + 14, right : right + 10] += _GLYPHS[digit]
        readings[box.astype(np.uint8).tobytes()] = digit
    return readings


_READINGS = _list_readings()
