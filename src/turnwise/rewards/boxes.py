r"""Finds the boxed answer in a text: the last `\boxed{...}` or `\fbox{...}`. Pure functions of text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BOX = r"\\(?:boxed|fbox)(?![A-Za-z])"
_TOKEN = re.compile(_BOX + r"\s*(?P<brace>\{)?|\\.|[{}$\n]", re.DOTALL)
"""A box, with its brace if it has one; an escaped character; a brace; a mark that begins or ends a formula."""
_BARE = re.compile(r"(?:[^\s$\\{},;]|(?!" + _BOX + r")\\[A-Za-z]+|\\%|\{[^{}$]*\}|,(?=\d))+")
r"""The content of a box without braces, outside a formula between `$`; never another box."""
_SAME_LINE = re.compile(rf"(?:(?!{_BOX})[^$\n])*")
_JOINS = re.compile(
    r"""(?:[\s$,;&~]|\\[,;:!()\[\]\\ ]|\\q?quad|(?:\\(?:text|mbox|textrm)\{)?\s*,?\s*(?:and|or)\b\s*\}?
        |[A-Za-z](?:_\{?\w\}?)?\s*=)*""",
    re.VERBOSE,
)
"""Text that may separate two boxes of one answer: marks, spaces, "and", "or", the name of the next one."""
_LONGEST_JOIN = 80


@dataclass(frozen=True, slots=True)
class _Box:
    start: int
    end: int
    content: str


def extract_boxed(text: str) -> str | None:
    r"""Return the content of the last box, stripped; None if no box has balanced braces.

    A box inside a box belongs to the outer one: `\boxed{\boxed{2}}` gives `\boxed{2}`. Escaped braces `\{` do not
    count. Without braces, `\boxed 2`, the box contains what follows: up to the `$` that ends a formula, else up to the
    next space. Boxes side by side are one answer of several parts, `\boxed{2}` and `\boxed{3}` give "2, 3".
    """
    boxes = _find_boxes(text)
    if not boxes:
        return None
    together = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        between = text[box.end : together[0].start]
        if len(between) > _LONGEST_JOIN or not _JOINS.fullmatch(between):
            break
        together.insert(0, box)
    return ", ".join(dict.fromkeys(box.content for box in together))


def _find_boxes(text: str) -> list[_Box]:
    """Find all boxes that are not inside another one, in order. Takes time linear in the text."""
    found: list[_Box] = []
    opened: list[tuple[int, int] | None] = []  # start and content of each open box, None for a bare brace
    in_formula, bare_until, unclosed_until = False, 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "$\n":
            in_formula = token == "$" and not in_formula
        elif token == "}":
            place = opened.pop() if opened else None
            if place is not None:
                while found and found[-1].start > place[0]:
                    found.pop()
                found.append(_Box(place[0], match.end(), text[place[1] : match.start()].strip()))
        elif token == "{":
            opened.append(None)
        elif match["brace"]:
            opened.append((match.start(), match.end()))
        elif len(token) > 2 and match.start() >= bare_until:
            held = _SAME_LINE.match(text, match.end()) if in_formula and match.end() > unclosed_until else None
            if held is not None and text[held.end() : held.end() + 1] != "$":
                unclosed_until = held.end()
                held = None
            held = held or _BARE.match(text, match.end())
            content = held[0].strip().rstrip(".,") if held else ""
            if held and content:
                found.append(_Box(match.start(), held.end(), content))
                bare_until = held.end()
    return found
