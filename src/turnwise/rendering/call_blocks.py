"""Where a block of JSON between two marks ends: at the first closing mark that is no part of a JSON string.

Linear in the length of a reply, whatever it holds: a search from one opening mark ends at the next one outside a
string, and a mark that one search passes inside a string is outside for every search that begins between the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from turnwise.rendering.raw_json import is_json

_STRING = r'"(?:[^"\\]++|\\.)*+"?'


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What stands behind an opening mark."""

    body: str
    end: int
    """Where the text goes on behind the block."""
    closed: bool
    """Whether a closing mark ends it, not the next opening mark or the end of the text."""


def read_block(text: str, start: int, *, opening: str, closing: str) -> Block:
    """The block whose opening mark ends at `start`.

    It ends at the first mark, or, where its body is JSON only that way, at the first closing mark outside JSON strings.
    """
    marks, tokens = _patterns(opening, closing)
    first = marks.search(text, start)
    if first is None:
        return Block(body=text[start:], end=len(text), closed=False)
    body = text[start : first.start()]
    if first[0] != closing or not is_json(body):
        outer = next((match for match in tokens.finditer(text, start) if not match[0].startswith('"')), None)
        if outer is not None and outer[0] == closing and outer.start() > first.start():
            longer = text[start : outer.start()]
            if is_json(longer):
                return Block(body=longer, end=outer.end(), closed=True)
    closed = first[0] == closing
    return Block(body=body, end=first.end() if closed else first.start(), closed=closed)


@lru_cache
def _patterns(opening: str, closing: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What matches a mark, and what matches a mark or a JSON string."""
    marks = f"{re.escape(closing)}|{re.escape(opening)}"
    return re.compile(marks), re.compile(f"{_STRING}|{marks}", re.DOTALL)
