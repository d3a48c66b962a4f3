"""What a policy reads of a page: its elements with numbers, and what the task asks."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

Kind = Literal["button", "link", "field", "area", "radio", "checkbox", "list", "shape", "label"]
Style = Literal["short", "full"]
FORM_KINDS = frozenset({"field", "area", "radio", "checkbox", "list"})
"""Kinds that have a value."""
_LINE = re.compile(r"\[(\d+)\] (\w+)(?: (.*?))?(?: \(([^()]*)\))?(?:: (.*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element of a page."""

    kind: Kind
    name: str
    value: str
    """The text of a field, the chosen option of a list, "on" for what is ticked."""
    options: tuple[str, ...] = ()
    tag: str = ""
    place: int = 0
    """Place in the order of the page, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page as it is at one time."""

    goal: str
    elements: tuple[Element, ...]
    """What can be operated, then labels; the number of an element is its place here, from 1."""
    is_done: bool = False
    reward: float = 0.0
    """The raw reward, before MiniWoB++ lowers it for the seconds that passed; meaningful once the task is done."""

    @property
    def operable(self) -> tuple[Element, ...]:
        """The elements that are no labels, or all where there are only labels."""
        return tuple(each for each in self.elements if each.kind != "label") or self.elements


def read_view(found: dict[str, Any]) -> View:
    """Return the view that the script `LOOK` returned."""
    elements = [
        Element(kind=kind, name=name, value=value, options=tuple(options), tag=tag, place=place)
        for place, (tag, kind, name, value, options) in enumerate(found["nodes"])
    ]
    elements.sort(key=lambda each: each.kind == "label")  # stable
    return View(
        goal=found["goal"], elements=tuple(elements), is_done=bool(found["done"]), reward=float(found["reward"])
    )


def write_listing(view: View, goal: str, style: Style) -> str:
    """Write a page for a policy; the goal comes last, where small models find it.

    "short" has names, values and numbers of what can be operated, "full" one line for every element.
    """
    if style == "short":
        words = [f"{_label(each)} {number}" for number, each in enumerate(view.operable, 1)]
        return f" {' '.join([*words, goal])}"
    lines = [f"[{number}] {_describe(each)}" for number, each in enumerate(view.elements, 1)]
    return "\n".join([*lines, goal])


def strip_stops(text: str) -> str:
    """Return a text without the stops at its end, which would stand between a name and its number."""
    return text.rstrip(".,")


def _label(element: Element) -> str:
    """Return what the short style calls an element: its name alone, or kind, name and value."""
    if element.kind not in FORM_KINDS:
        return strip_stops(element.name) or element.kind
    words = [element.kind, element.name, f"= {element.value}" if element.value else ""]
    return " ".join(filter(None, words))


def _describe(element: Element) -> str:
    line = f"{element.kind} {element.name}".rstrip()
    if element.options:
        line += f" ({', '.join(element.options)})"
    return f"{line}: {element.value}" if element.value else line


def read_listing(text: str, style: Style) -> tuple[tuple[Element, ...], str]:
    """Return the elements that a listing shows, in the order of their numbers, and the goal.

    The short style says of an element that is no part of a form only that it is one: it is read as a button.
    """
    return _read_short(text) if style == "short" else _read_full(text)


def _read_short(text: str) -> tuple[tuple[Element, ...], str]:
    elements: list[Element] = []
    words: list[str] = []
    for word in text.split():
        if words and word == str(len(elements) + 1):
            kind = words[0] if words[0] in FORM_KINDS else "button"
            name, _, value = " ".join(words[kind != "button" :]).partition("= ")
            elements.append(Element(kind=cast(Kind, kind), name=name.strip(), value=value))
            words = []
        else:
            words.append(word)
    return tuple(elements), " ".join(words)


def _read_full(text: str) -> tuple[tuple[Element, ...], str]:
    lines = text.split("\n")
    found = []
    for line in lines[:-1]:
        if match := _LINE.fullmatch(line):
            number, kind, name, options, value = match.groups()
            listed = tuple(options.split(", ")) if options else ()
            element = Element(kind=cast(Kind, kind), name=name or "", value=value or "", options=listed)
            found.append((int(number), element))
    return tuple(element for _, element in sorted(found, key=lambda each: each[0])), lines[-1]


def find_numbers(elements: Sequence[Element], kinds: Collection[str] = (), name: str | None = None) -> list[int]:
    """Return the numbers of the elements of some kinds and with a name; an empty set and None stand for any."""
    return [
        number
        for number, each in enumerate(elements, 1)
        if (not kinds or each.kind in kinds) and (name is None or each.name == name)
    ]
