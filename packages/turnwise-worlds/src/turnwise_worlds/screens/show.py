"""What the policy gets of a screen: a picture, lines of text, or both. Both come from the same elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from turnwise.core.messages import Part, TextPart
from turnwise.core.pictures import Pixels
from turnwise.pictures.read import read_picture
from turnwise_worlds.screens.screen import COLOURS, SIDE, Element

Surface = Literal["picture", "text", "both"]

CELL = 16
"""Pixels a side of a cell."""
_GROUND = (150, 150, 150)
_WHITE = (250, 250, 250)
_INK = (60, 60, 60)


def show(elements: Sequence[Element], surface: Surface) -> tuple[Part, ...]:
    """Return the parts of a message that shows these elements."""
    picture = () if surface == "text" else (read_picture(draw(elements), label="screen"),)
    return picture if surface == "picture" else (*picture, TextPart(text=describe(elements)))


def describe(elements: Sequence[Element]) -> str:
    """Write an element per line, `red field 2 3 kalo focus`: colour, role, row and column from 1, text, focus. What
    names an element comes first, so that a reader finds its place next to its name."""
    lines = []
    for each in elements:
        row, column = each.cell
        words = (each.colour, each.role, str(row + 1), str(column + 1), each.text, "focus" * each.has_focus)
        lines.append(" " + " ".join(filter(None, words)))
    return "\n".join(lines) or " nothing"


def draw(elements: Sequence[Element]) -> Pixels:
    """Draw a screen, `[64, 64, 3]`.

    A button is a square of its colour, an item a bar, a field a white square in a frame of its colour, "ok" a white
    square with a cross; a field with a text has dark lines, one with the focus a dark corner.
    """
    picture = np.empty((SIDE * CELL, SIDE * CELL, 3), np.uint8)
    picture[:] = _GROUND
    for each in elements:
        row, column = (at * CELL for at in each.cell)
        cell = picture[row : row + CELL, column : column + CELL]
        colour = COLOURS.get(each.colour, _WHITE)
        if each.role == "item":
            cell[4:12] = colour
        elif each.role == "thumb":
            cell[:, 6:10] = _INK
        else:
            cell[2:14, 2:14] = colour
        if each.role == "ok":
            steps = np.arange(4, 12)
            cell[steps, steps] = cell[steps, steps[::-1]] = _INK
        if each.role == "field":
            cell[5:11, 5:11] = _WHITE
            if each.text:
                cell[[6, 8], 6:10] = _INK
            if each.has_focus:
                cell[2:5, 2:5] = _INK
    return picture
