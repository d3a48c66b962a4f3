"""What can be done on a page: WebArena's actions, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Click:
    """Click on the element with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Type:
    """Replace the text of the element with this number; `enter` sends its form."""

    number: int
    text: str
    enter: bool


@dataclass(frozen=True, slots=True)
class Select:
    """Choose an option, by its text, of the list with this number."""

    number: int
    option: str


@dataclass(frozen=True, slots=True)
class Scroll:
    """Move what is visible of the page."""

    direction: Direction


@dataclass(frozen=True, slots=True)
class Back:
    """Return to the page before."""


@dataclass(frozen=True, slots=True)
class Goto:
    """Open a page of the same site by its path."""

    path: str


@dataclass(frozen=True, slots=True)
class ClickAt:
    """Click at a place of the picture, in pixels from the top left."""

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the episode with an answer, which may be empty."""

    answer: str


Action = Click | Type | Select | Scroll | Back | Goto | ClickAt | Stop
