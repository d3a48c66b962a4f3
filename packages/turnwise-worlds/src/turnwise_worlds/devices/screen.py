"""A device in use: the page that is shown, what of it is on the screen, what has the focus. Pure functions.

A screen shows so many lines of a page, one element or text each and all as wide as the screen, so that every element
has a place in pixels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from turnwise.core.errors import ToolFailure
from turnwise_worlds.devices.apps import LABELS
from turnwise_worlds.devices.pages import HOME, handle
from turnwise_worlds.devices.state import Device
from turnwise_worlds.web.actions import Action, Back, Click, Goto, Type
from turnwise_worlds.web.client import History, plan_move
from turnwise_worlds.web.page import TYPED, Page
from turnwise_worlds.web.site.handle import Request
from turnwise_worlds.web.snapshot import extract


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A screen's size in pixels, and what its lines measure."""

    width: int
    rows: int
    line: int

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return self.rows * self.line


PHONE = Shape(width=320, rows=8, line=80)
DESKTOP = Shape(width=800, rows=15, line=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a page."""

    text: str
    number: int | None
    """The element of the line; None for a text."""


def list_lines(page: Page) -> list[Line]:
    """Return a page's lines. Texts and names are quoted, so that none can look like another line."""
    lines = []
    for node in page.nodes:
        name = json.dumps(node.name, ensure_ascii=False)
        if node.number is not None:
            value = f" {json.dumps(node.value, ensure_ascii=False)}" if node.role in TYPED else ""
            lines.append(Line(text=f"[{node.number - 1}] {node.role} {name}{value}", number=node.number))
        elif node.role in ("text", "heading") and node.name:
            lines.append(Line(text=f"{node.role} {name}", number=None))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """A device, and where its user is."""

    shape: Shape
    device: Device
    page: Page
    history: History
    start: int = 0
    """Lines above the screen."""
    focus: int | None = None
    """The text field that receives what is typed."""

    @staticmethod
    def open(device: Device, shape: Shape) -> Screen:
        """Return a device that shows its home page."""
        answer = handle(device, Request(method="GET", path=HOME))
        return Screen(shape=shape, device=device, page=extract(answer.html), history=History(urls=(HOME,)))

    @property
    def path(self) -> str:
        """The address of the page."""
        return self.history.urls[-1]

    @property
    def visible(self) -> list[Line]:
        """The lines on the screen."""
        return list_lines(self.page)[self.start : self.start + self.shape.rows]

    def find_at(self, x: int, y: int) -> int | None:
        """Return the element at a place; None where there is none. Raises ToolFailure outside the screen."""
        if not (0 <= x < self.shape.width and 0 <= y < self.shape.height):
            raise ToolFailure(f"({x}, {y}) is not on the screen of {self.shape.width} x {self.shape.height}")
        lines, row = self.visible, y // self.shape.line
        return lines[row].number if row < len(lines) else None

    def place_of(self, number: int) -> tuple[int, int]:
        """Return the middle of an element that is visible."""
        row = next(row for row, line in enumerate(self.visible) if line.number == number)
        return self.shape.width // 2, row * self.shape.line + self.shape.line // 2

    def check_visible(self, number: int) -> int:
        """Return the number of an element. Raises ToolFailure if it is not on the screen."""
        if all(line.number != number for line in self.visible):
            raise ToolFailure(f"there is no element {str(number - 1)[:8]} on the screen")
        return number

    def tap(self, number: int | None) -> Screen:
        """Return the screen after a tap on an element: a field takes the focus, links and buttons do their work."""
        node = None if number is None else self.page.find(number)
        if number is None or node is None:
            return replace(self, focus=None)
        return replace(self, focus=number) if node.role in TYPED else self._do(Click(number))

    def type(self, text: str, *, clears: bool) -> Screen:
        """Return the screen after a text was typed, after that of the field with the focus or in its place. Raises
        ToolFailure without a focus and for what no field takes."""
        if self.focus is None:
            raise ToolFailure("no text field has the focus")
        node = self.page.find(self.focus)
        before = "" if clears or node is None else node.value
        return self._do(Type(self.focus, before + text, enter=False))

    def enter(self) -> Screen:
        """Return the screen after the enter key: it sends the form of the field with the focus."""
        if self.focus is None:
            return self
        node = self.page.find(self.focus)
        return self._do(Type(self.focus, "" if node is None else node.value, enter=True))

    def scroll(self, lines: int) -> Screen:
        """Return the screen moved down by so many lines, as far as there are any."""
        last = max(0, len(list_lines(self.page)) - self.shape.rows)
        return replace(self, start=min(max(self.start + lines, 0), last))

    def back(self) -> Screen:
        """Return the screen before; itself on the first one."""
        return self if len(self.history.urls) == 1 else self._do(Back())

    def go(self, path: str) -> Screen:
        """Return the screen of a path."""
        return self._do(Goto(path))

    def _do(self, action: Action) -> Screen:
        move = plan_move(self.page, self.history, action)
        if move.request is None:
            return replace(self, page=move.page, history=move.history)
        answer = handle(self.device, move.request)
        history = move.history.visit(answer.location, posted=move.request.method == "POST")
        return Screen(shape=self.shape, device=answer.device, page=extract(answer.html), history=history)


def find_app(name: str) -> str:
    """Return the path of an app by its label, whatever its case. Raises ToolFailure."""
    for path, label in LABELS.items():
        if label.casefold() == name.strip().casefold():
            return f"/{path}"
    raise ToolFailure(f"no app is called {name[:20]!r}; there are {', '.join(LABELS.values())}")
