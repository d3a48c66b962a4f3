"""Programs in Markdown fences, as CommonMark reads them: a fence ends at a line of its own.

Backticks inside a program, in a string or an indented docstring, end nothing.
"""

from __future__ import annotations

import re

_OPENING = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([^`]*)")
_BEHIND_TEXT = re.compile(r"(?<!`)`{3,}[\w+-]*[ \t]*$")
_PYTHON = frozenset({"", "python", "python3", "py"})


def find_program(text: str) -> str | None:
    """The program in the last fence that is not marked as something other than Python, else in the last fence; None
    where no fence is closed.

    A fence that no line closes before the next one opens ends at the first run of its marks. An indented fence, as in a
    list, takes its indentation from its lines.
    """
    last: str | None = None
    last_program: str | None = None
    lines = text.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        opening = _OPENING.fullmatch(lines[at])
        if opening is None and (behind := _BEHIND_TEXT.search(lines[at])):
            opening = _OPENING.fullmatch(behind[0])
        at += 1
        if opening is None:
            continue
        indent, marks, info = opening.groups()
        found = _read_fence(lines, at, len(indent), marks)
        if found is None:
            continue
        last, at = found
        if info.strip(" \t{}.").partition(" ")[0].lower() in _PYTHON:
            last_program = last
    return last if last_program is None else last_program


def _read_fence(lines: list[str], start: int, indent: int, marks: str) -> tuple[str, int] | None:
    """The program of a fence whose first line is `start`, and the line behind its end; None where it is not closed."""
    closing = re.compile(rf"[ \t]{{0,{indent + 3}}}{marks[0]}{{{len(marks)},}}[ \t]*")
    next_opening = re.compile(rf"[ \t]{{0,{indent + 3}}}{marks}[ \t]*\w[^`]*")
    inline: int | None = None
    for end in range(start, len(lines)):
        if closing.fullmatch(lines[end]):
            return _join(lines[start:end], indent), end + 1
        if inline is None and marks in lines[end]:
            inline = end
        if next_opening.fullmatch(lines[end]):
            break
    if inline is None:
        return None
    *whole, rest = [*lines[start:inline], lines[inline].partition(marks)[0]]
    return _join(whole, indent) + rest, inline + (next_opening.fullmatch(lines[inline]) is None)


def _join(lines: list[str], indent: int) -> str:
    """Lines without the indentation of their fence."""
    return "".join(f"{line[min(indent, len(line) - len(line.lstrip())) :]}\n" for line in lines)
