"""Brings Google-style docstrings into the one form that transformers' `get_json_schema` reads.

It knows the heading `Args:` and entries `name: text`. Google's style also has types in brackets (`name (int): text`)
and further headings; without this an entry of the first kind counts as missing, and a heading of the second kind
becomes part of the description above it.
"""

from __future__ import annotations

import re

_HEADING = re.compile(r"(?P<indent>[ \t]*)(?:Arguments|Parameters|Keyword Args|Keyword Arguments|Args):[ \t]*$")
_TYPED = re.compile(r"(?P<start>[ \t]+\w+)[ \t]*\([^()]*(?:\([^()]*\)[^()]*)*\)[ \t]*:")
_OTHER = re.compile(r"[ \t]*(?:Returns|Yields|Raises|Examples?|Notes?):[ \t]*$")


def to_plain_google(text: str) -> str:
    """The docstring with one heading `Args:` and entries without types; everything else as it is."""
    lines: list[str] = []
    is_inside = has_heading = False
    for line in text.split("\n"):
        if heading := _HEADING.match(line):
            is_inside = True
            if not has_heading:
                lines.append(f"{heading['indent']}Args:")
            has_heading = True
            continue
        is_inside = is_inside and not _OTHER.match(line)
        lines.append(_TYPED.sub(r"\g<start>:", line, count=1) if is_inside else line)
    return "\n".join(lines)
