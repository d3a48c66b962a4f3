"""A screen in use, and what is shown of it under the controls of `ScreensArguments`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise.core.seeds import derive_seed
from turnwise_worlds.screens.arguments import ScreensArguments
from turnwise_worlds.screens.screen import Element, Screen, make_screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A screen and the one that is shown in its place; every action is done on both."""

    screen: Screen
    shown: Screen | None
    """None shows nothing."""

    @staticmethod
    def open(payload: Mapping[str, Any], chosen: ScreensArguments) -> Session:
        """Return the session of a task before any action."""
        screen = make_screen(payload)
        if chosen.shown == "own":
            return Session(screen=screen, shown=screen)
        if chosen.shown == "empty":
            return Session(screen=screen, shown=None)
        seed = derive_seed(int(payload["seed"]), "other")
        return Session(screen=screen, shown=make_screen({"kind": screen.kind, "seed": seed}))

    @property
    def elements(self) -> tuple[Element, ...]:
        """What is shown."""
        return () if self.shown is None else self.shown.elements

    def act(self, action: Callable[[Screen], Screen]) -> Session:
        """Return the session after an action."""
        return replace(self, screen=action(self.screen), shown=None if self.shown is None else action(self.shown))
