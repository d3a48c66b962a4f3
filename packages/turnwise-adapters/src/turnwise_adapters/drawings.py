"""Converts drawings for a terminal to plain text."""

from __future__ import annotations

import re
from collections.abc import Mapping

MARKS: Mapping[str, str] = {"41": "[]", "43": "[]", "42": "{}", "34": "<>", "35": "()"}
"""Marks put around a character that a drawing colours. FrozenLake and Taxi highlight the player, Taxi in green with a
passenger aboard; it writes the passenger's place in blue and the destination in magenta."""

_PIECE = re.compile(r"\x1b\[([\d;]*)m|(.)", re.DOTALL)


def write_colours(drawing: str) -> str:
    """Convert a drawing for a terminal to plain text, with `MARKS` for its colours."""
    text = ""
    codes: list[str] = []
    for code, character in _PIECE.findall(drawing):
        if character:
            marks = [MARKS[code] for code in codes if code in MARKS]
            text += "".join(m[0] for m in marks) + character + "".join(m[1] for m in reversed(marks))
        else:
            codes = [] if code in ("", "0") else codes + code.split(";")
    return text


def space_out(text: str) -> str:
    """Convert `F[S]H` to ` F @ H`, so that every cell is one word and the highlighted one is the player."""
    return "\n".join("".join(f" {cell}" for cell in re.sub(r"\[.\]", "@", line)) for line in text.splitlines())
