"""What every surface of the site can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from turnwise.core.errors import EnvironmentFault
from turnwise.core.messages import ImagePart
from turnwise_worlds.web.actions import Action
from turnwise_worlds.web.site.state import State
from turnwise_worlds.web.snapshot import Page

SurfaceName = Literal["text", "http", "chromium"]


class SurfaceError(EnvironmentFault):
    """The surface itself failed, for instance a browser that was killed or ran past a deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a surface shows after an action."""

    page: Page
    url: str
    """Path and query of the page, such as "/search?q=mug"."""
    picture: ImagePart | None = None
    """The page as a picture, on surfaces that draw."""


class Surface(Protocol):
    """One visit of one site. Single use: opened once, closed once."""

    @property
    def state(self) -> State:
        """The site's state, read on the site's side, never from the page."""
        ...

    async def open(self, state: State) -> Seen:
        """Show the home page of a site in this state. Raises SurfaceError."""
        ...

    async def act(self, action: Action) -> Seen:
        """Do one action and return what is shown then.

        Raises ToolFailure, with one short line, for what the page refuses: a number that is not on it, no such option.
        Raises SurfaceError if the surface itself fails. `Scroll` and `Stop` change nothing on surfaces without
        pictures.
        """
        ...

    async def close(self) -> None:
        """Free what `open` took; also after a failure, and a second time."""
        ...
