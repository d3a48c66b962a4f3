"""The site as text: pages are read in this process, without a socket."""

from __future__ import annotations

from turnwise.core.errors import EnvironmentFault
from turnwise_worlds.web.actions import Action
from turnwise_worlds.web.client import History, Move, plan_move
from turnwise_worlds.web.page import Page
from turnwise_worlds.web.site.handle import Answer, Request, handle
from turnwise_worlds.web.site.state import State
from turnwise_worlds.web.snapshot import extract
from turnwise_worlds.web.surfaces.surface import Seen

HOME = Request(method="GET", path="/")


class TextSurface:
    """Implements `Surface`; also by plain calls, for policies that play an episode again."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._at: tuple[State, Page, History] | None = None

    @property
    def state(self) -> State:
        """See `Surface`."""
        return self._place[0]

    async def open(self, state: State) -> Seen:
        """See `Surface`."""
        return self.start(state)

    async def act(self, action: Action) -> Seen:
        """See `Surface`."""
        return self.move(action)

    async def close(self) -> None:
        """See `Surface`."""

    def start(self, state: State) -> Seen:
        """Show the home page."""
        return self._arrive(handle(state, HOME), History(urls=(HOME.path,)))

    def move(self, action: Action) -> Seen:
        """Do one action. Raises ToolFailure for what the page refuses."""
        state, page, history = self._place
        move = plan_move(page, history, action)
        if move.request is None:
            self._at = (state, move.page, move.history)
            return Seen(page=move.page, url=move.history.urls[-1])
        answer = handle(state, move.request)
        return self._arrive(answer, after(move, answer.location))

    def fork(self) -> TextSurface:
        """Return a second surface at the same place."""
        twin = TextSurface()
        twin._at = self._at  # all of it is frozen
        return twin

    @property
    def _place(self) -> tuple[State, Page, History]:
        if self._at is None:
            raise EnvironmentFault("the surface is not open; open it before acting")
        return self._at

    def _arrive(self, answer: Answer, history: History) -> Seen:
        page = extract(answer.html)
        self._at = (answer.state, page, history)
        return Seen(page=page, url=answer.location)


def after(move: Move, location: str) -> History:
    """Return the history after a move's request was answered from that location."""
    posted = move.request is not None and move.request.method == "POST"
    return move.history.visit(location, posted=posted)
