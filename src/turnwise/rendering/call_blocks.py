"""Finds the end of a block of JSON between two marks: the first closing mark that is not part of a JSON string.

Takes time linear in the length of a reply, whatever its content: a search from one opening mark ends at the next one
outside a string, and a mark that one search passes inside a string is outside for every search that begins between the
two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from turnwise.rendering.raw_json import is_json

_STRING = r'"(?:[^"\\]++|\\.)*+"?'


_BRACES = re.compile(rf"[{{}}]|{_STRING}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The text behind an opening mark."""

    body: str
    end: int
    """Where the text continues behind the block."""
    closed: bool
    """Whether the block ends at a closing mark, and not at the next opening mark or the end of the text."""


def read_block(
    text: str,
    start: int,
    *,
    opening: str,
    closing: str,
    is_whole: Callable[[str], bool] = is_json,
    ends_text: bool = False,
) -> Block:
    """Read the block whose opening mark ends at `start`; `is_whole` tells whether a text is a complete body.

    It ends at the first mark, or, if only that makes its body complete, at the first closing mark outside JSON strings.
    With `ends_text` the end of the text closes a block too.
    """
    marks, tokens = _patterns(opening, closing)
    first = marks.search(text, start)
    if first is None:
        return Block(body=text[start:], end=len(text), closed=ends_text)
    body = text[start : first.start()]
    if first[0] != closing or not is_whole(body):
        outer = next((match for match in tokens.finditer(text, start) if not match[0].startswith('"')), None)
        if outer is not None and outer[0] == closing and outer.start() > first.start():
            longer = text[start : outer.start()]
            if is_whole(longer):
                return Block(body=longer, end=outer.end(), closed=True)
        if outer is None and ends_text and is_whole(text[start:]):
            return Block(body=text[start:], end=len(text), closed=True)
    closed = first[0] == closing
    return Block(body=body, end=first.end() if closed else first.start(), closed=closed)


@lru_cache
def _patterns(opening: str, closing: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a pattern for a mark, and one for a mark or a JSON string."""
    marks = f"{re.escape(closing)}|{re.escape(opening)}"
    return re.compile(marks), re.compile(f"{_STRING}|{marks}", re.DOTALL)


def escape_marks(written: str, marks: Sequence[str]) -> str:
    """Return JSON text with the same values but without the marks in its strings."""
    for mark in marks:
        written = written.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return written


def find_object_end(text: str, start: int) -> int | None:
    """Return where the object that begins at `start` ends, by its braces outside strings; None if it does not end.

    Takes linear time in total for a caller that continues behind the object, or stops at one that does not end.
    """
    depth = 0
    for match in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return None
