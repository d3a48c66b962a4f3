"""The state of a screen, what its actions do, and what it shows. Pure functions.

A screen is a grid of `SIDE * SIDE` cells, each of which shows at most one element: a button, a field, an item of a
list, the button "ok" of a form, or the thumb of a list's scroll bar. Every kind of task ends with one decisive click.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from turnwise.core.seeds import rng

Kind = Literal["press", "form", "list"]
Role = Literal["button", "field", "item", "ok", "thumb"]
Direction = Literal["up", "down"]
Cell = tuple[int, int]
"""Row and column, counted from 0."""

SIDE = 4
"""Cells a side."""
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (40, 60, 220),
    "yellow": (235, 220, 40),
    "pink": (240, 110, 200),
    "black": (10, 10, 10),
}
WORDS = ("kalo", "mine", "rosu", "tefa")
"""Words to type."""
NUM_BUTTONS = 4
NUM_FIELDS = 2
WINDOW = 3
"""Items of a list that are visible at once; scrolling moves it by as many."""
LAST_START = len(COLOURS) - WINDOW
"""The largest number of items above the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """What one cell shows."""

    role: Role
    cell: Cell
    colour: str = ""
    """Empty for "ok" and "thumb"."""
    text: str = ""
    """What was typed into a field."""
    has_focus: bool = False
    """Whether a field receives what is typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A screen between two actions."""

    kind: Kind
    target: str
    """The colour of what the task names."""
    word: str = ""
    """What a form asks for."""
    places: tuple[tuple[str, Cell], ...] = ()
    """The colours and cells of buttons or fields."""
    ok: Cell = (0, 0)
    """The cell of a form's button."""
    items: tuple[str, ...] = ()
    """The colours of a list, from the top."""
    start: int = 0
    """Items above the window."""
    focus: str = ""
    """The colour of the field that receives text; empty for none."""
    typed: tuple[tuple[str, str], ...] = ()
    """The text of each field that has one, by colour."""
    chosen: str = ""
    """What the decisive click was on: a colour, or "ok"; empty before it."""

    @property
    def succeeded(self) -> bool:
        """Whether the decisive click was right: on the button or item that the task names, or on a form's "ok" when the
        named field has the word and no other field has a text."""
        if self.kind == "form":
            return self.chosen == "ok" and self.typed == ((self.target, self.word),)
        return self.chosen == self.target

    @property
    def elements(self) -> tuple[Element, ...]:
        """What is shown, by rows."""
        if self.kind == "list":
            rows = range(WINDOW)
            shown = [Element(role="item", cell=(row, 0), colour=self.items[self.start + row]) for row in rows]
            thumb = self.start * (SIDE - 1) // LAST_START
            return tuple(sorted((*shown, Element(role="thumb", cell=(thumb, SIDE - 1))), key=lambda each: each.cell))
        if self.kind == "press":
            elements = [Element(role="button", cell=cell, colour=colour) for colour, cell in self.places]
        else:
            typed = dict(self.typed)
            elements = [
                Element(role="field", cell=cell, colour=name, text=typed.get(name, ""), has_focus=name == self.focus)
                for name, cell in self.places
            ]
            elements.append(Element(role="ok", cell=self.ok))
        return tuple(sorted(elements, key=lambda each: each.cell))

    def click(self, cell: Cell) -> Screen:
        """Return the screen after a click; the same if nothing there reacts."""
        hit = next((each for each in self.elements if each.cell == cell), None)
        if hit is None or hit.role == "thumb":
            return self
        if hit.role == "field":
            return replace(self, focus=hit.colour)
        return replace(self, chosen=hit.colour or hit.role)

    def type(self, text: str) -> Screen:
        """Return the screen after a text was typed: it replaces that of the field with the focus."""
        if not self.focus:
            return self
        return replace(self, typed=tuple(sorted({**dict(self.typed), self.focus: text}.items())))

    def scroll(self, direction: Direction) -> Screen:
        """Return the screen after a list was scrolled by its window; it stops at both ends."""
        if self.kind != "list":
            return self
        start = self.start + (WINDOW if direction == "down" else -WINDOW)
        return replace(self, start=min(max(start, 0), LAST_START))


def make_screen(payload: Mapping[str, Any]) -> Screen:
    """Make the first screen of a task from its kind and seed, and the colour that it names if the payload says so."""
    kind: Kind = payload["kind"]
    random = rng(int(payload["seed"]), "screen", kind)
    names, named = list(COLOURS), payload.get("target")
    cells = [(row, column) for row in range(SIDE) for column in range(SIDE)]
    if kind == "list":
        random.shuffle(names)
        return Screen(kind=kind, target=named or random.choice(names), items=tuple(names))
    count = NUM_BUTTONS if kind == "press" else NUM_FIELDS
    *places, ok = random.sample(cells, count + 1)
    colours = random.sample(names, count)
    if named is not None and named not in colours:
        colours[random.randrange(count)] = named
    shown = tuple(zip(colours, places, strict=True))
    word = "" if kind == "press" else random.choice(WORDS)
    return Screen(kind=kind, target=named or random.choice(colours), word=word, places=shown, ok=ok)
