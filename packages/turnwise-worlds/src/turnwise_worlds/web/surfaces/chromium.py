"""The site in a real Chromium: pages are drawn, and operated by real clicks and keys.

What is read is the browser's own document, by the same reader as on the other surfaces; what is clicked is the
browser's element with the role and the ordinal that the number has on the page that was read.
"""

from __future__ import annotations

import base64
import threading
from typing import Any, Literal, cast

from turnwise.core.errors import EnvironmentFault, ToolFailure
from turnwise.core.messages import ImagePart
from turnwise.pictures.read import read_picture
from turnwise_worlds.browser.browser import BrowserPage, Step, share_browser
from turnwise_worlds.browser.outcomes import PageLost
from turnwise_worlds.browser.settings import BrowserSettings
from turnwise_worlds.browser.wire import Asked, Replied
from turnwise_worlds.web.actions import Action, Back, Click, ClickAt, Goto, Scroll, Select, Stop, Type
from turnwise_worlds.web.client import History, plan_move
from turnwise_worlds.web.page import Page
from turnwise_worlds.web.site.handle import Request, handle
from turnwise_worlds.web.site.state import State
from turnwise_worlds.web.snapshot import extract
from turnwise_worlds.web.surfaces.surface import Seen, SurfaceError
from turnwise_worlds.web.surfaces.text import HOME

SIDE = 224
"""Pixels of a side of the page, and of its picture."""
_SCROLL = 160
_DOCUMENT = """() => {
  const all = root => [...root.querySelectorAll('input, textarea, option')];
  const copy = document.documentElement.cloneNode(true);
  const twins = all(copy);
  all(document).forEach((each, at) => {
    const twin = twins[at];
    if (each.tagName === 'TEXTAREA') twin.textContent = each.value;
    else if (each.tagName === 'OPTION') twin.toggleAttribute('selected', each.selected);
    else if (['radio', 'checkbox'].includes(each.type)) twin.toggleAttribute('checked', each.checked);
    else twin.setAttribute('value', each.value);
  });
  return '<!DOCTYPE html>' + copy.outerHTML;
}"""
"""Return the document with what was typed and chosen as attributes."""


class ChromiumSurface:
    """Implements `Surface`. The browser is shared by the episodes of this process; each has a context of its own."""

    def __init__(self, *, pictures: bool = False, settings: BrowserSettings | None = None) -> None:
        """Opens nothing yet. With `pictures` the page is drawn too, and clicked at by pixels."""
        self._pictures = pictures
        self._browser = share_browser(settings or BrowserSettings())
        self._lock = threading.Lock()
        self._state: State | None = None
        self._asked: list[str] = []
        """Methods of what the browser has asked for since the last action."""
        self._page: BrowserPage | None = None
        self._at: tuple[Page, History] | None = None

    @property
    def state(self) -> State:
        """See `Surface`."""
        if self._state is None:
            raise EnvironmentFault("the surface is not open; open it before acting")
        return self._state

    async def open(self, state: State) -> Seen:
        """See `Surface`. Raises ConfigError, with the remedy, where the browser is missing."""
        self._state = state
        try:
            self._page = await self._browser.open(self._answer, HOME.path)
        except PageLost as lost:
            raise SurfaceError(str(lost)) from lost
        return await self._look(History(urls=(HOME.path,)))

    async def act(self, action: Action) -> Seen:
        """See `Surface`. Raises PageRefused, a ToolFailure, for what no page may do."""
        if self._at is None or self._page is None:
            raise EnvironmentFault("the surface is not open; open it before acting")
        page, history = self._at
        if isinstance(action, ClickAt):
            if not (self._pictures and 0 <= action.x < SIDE and 0 <= action.y < SIDE):
                raise ToolFailure(f"x and y are 0 to {SIDE - 1}" if self._pictures else "there is no picture")
        else:
            history = plan_move(page, history, action).history
        self._asked.clear()
        try:
            await self._run(*_steps(page, action), ("settle",))
        except ToolFailure:
            await self._look(history)
            raise
        return await self._look(history)

    async def close(self) -> None:
        """See `Surface`."""
        if self._page is not None:
            await self._page.close()

    async def aria(self) -> str:
        """Return the page as the browser's accessibility tree shows it, written by Playwright."""
        return str((await self._run(("aria",)))[0])

    async def _run(self, *steps: Step) -> list[Any]:
        assert self._page is not None
        try:
            return await self._page.run(*steps)
        except PageLost as lost:
            raise SurfaceError(str(lost)) from lost

    async def _look(self, history: History) -> Seen:
        steps: list[Step] = [("evaluate", _DOCUMENT, None), ("url",)]
        if self._pictures:
            steps.append(("picture", SIDE, SIDE))
        html, url, *pictures = await self._run(*steps)
        if self._asked:
            history = history.visit(url, posted="POST" in self._asked)
        seen = Seen(page=extract(html), url=url, picture=_read_picture(pictures))
        self._at = (seen.page, history)
        return seen

    def _answer(self, asked: Asked) -> Replied:
        """Answer the browser, in a thread of its own."""
        if asked.method not in ("GET", "POST"):
            return Replied(405, "", "")
        request = Request(
            method=cast(Literal["GET", "POST"], asked.method), path=asked.target, fields=dict(asked.fields)
        )
        with self._lock:
            if asked.target != "/favicon.ico":
                self._asked.append(asked.method)
            answer = handle(self.state, request)
            self._state = answer.state
        return Replied(303, "", answer.location) if asked.method == "POST" else Replied(200, answer.html, "")


def _steps(page: Page, action: Action) -> list[Step]:
    """Return what the browser does for an action."""
    match action:
        case Click(number):
            return [("click", *_find(page, number))]
        case Type(number, text, enter):
            return [("fill", *_find(page, number), text, enter)]
        case Select(number, option):
            return [("choose", *_find(page, number), option)]
        case Goto(path):
            return [("goto", path)]
        case Back():
            return [("back",)]
        case ClickAt(x, y):
            return [("mouse", x, y)]
        case Scroll(direction):
            return [("wheel", _SCROLL if direction == "down" else -_SCROLL)]
        case Stop():
            return []


def _find(page: Page, number: int) -> tuple[str, int]:
    """Return the role of an element and its place among those of that role."""
    node = page.find(number)
    assert node is not None  # `plan_move` has refused other numbers
    return node.role, sum(each.role == node.role for each in page.nodes[: page.nodes.index(node)])


def _read_picture(pictures: list[Any]) -> ImagePart | None:
    return read_picture(base64.b64decode(pictures[0])) if pictures else None
