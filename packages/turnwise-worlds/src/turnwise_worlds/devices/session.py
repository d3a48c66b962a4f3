"""An episode on a device: its screen, where the mouse is, and what the user has said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from turnwise_worlds.devices.screen import Screen

Kind = Literal["phone", "desktop"]
"""AndroidWorld's actions on a phone, OSWorld's on a desktop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An episode between two actions."""

    screen: Screen
    answer: str = ""
    """What was answered last."""
    is_over: bool = False
    """Whether the user has said that the task is done or cannot be done."""
    cursor: tuple[int, int] = (0, 0)
    """Where the mouse is, in pixels; a phone has none."""
    pressed: tuple[int, int] | None = None
    """Where the mouse button was pressed and not yet released."""
    selects_all: bool = False
    """Whether the text of the field with the focus is selected, so that typing replaces it."""
