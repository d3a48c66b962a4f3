"""The lines of a source file, as Python, editors and pytest number them.

`str.splitlines` also ends lines at form feeds and at U+0085, U+2028 and U+2029, which occur inside strings and
comments.
"""

from __future__ import annotations

import re


def split_source(text: str) -> list[str]:
    """The lines without their ends: a line feed, a carriage return, or both."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines[:-1] if not lines[-1] else lines


def find_line_end(content: bytes) -> bytes:
    r"""The most frequent line end: `\r\n` or `\n`."""
    num_crlf = content.count(b"\r\n")
    return b"\r\n" if 2 * num_crlf > content.count(b"\n") else b"\n"


def to_line_end(text: bytes, end: bytes) -> bytes:
    r"""Convert a text with lines ending in `\n` or `\r\n` for a file whose lines end with `end`. For a file with `\n`
    it stays as it is."""
    return re.sub(rb"\r?\n", rb"\r\n", text) if end == b"\r\n" else text
