"""Pages of MiniWoB++ in the browser: opened, begun again with another seed, operated."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from turnwise.core.errors import ToolFailure
from turnwise.core.packages import require_package
from turnwise_worlds.browser.browser import Browser, BrowserPage
from turnwise_worlds.browser.places import Places
from turnwise_worlds.browser.settings import BrowserSettings
from turnwise_worlds.miniwob.goals import Step
from turnwise_worlds.miniwob.listing import Element, View, read_view
from turnwise_worlds.miniwob.scripts import CHOOSE, LOOK, PLACE, START

WIDTH, HEIGHT = 160, 210
"""Pixels of a task's area."""
_sharing = threading.Lock()
_MOST_EPISODES = 200
"""Episodes on one page before it is opened anew, so that what pages leave in memory is freed."""


def find_html() -> Path:
    """Return the folder of MiniWoB++'s pages. Raises ConfigError with the remedy if the package is missing.

    Its driver, which `import miniwob` would load, needs Selenium and is not used.
    """
    require_package("miniwob", "1.0", "web")
    spec = find_spec("miniwob")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "html"


@dataclass(slots=True)
class _Used:
    page: BrowserPage
    task: str
    num_episodes: int = 0


class OpenPage(Protocol):
    """One episode on a page."""

    view: View
    """The page as it was after the last action."""

    async def act(self, step: Step) -> View:
        """Carry out a step and look. Raises ToolFailure for an element that is not there or cannot do it, PageLost."""
        ...

    async def click_at(self, x: int, y: int) -> View:
        """Click at a pixel and look. Raises ToolFailure for a place outside, PageLost."""
        ...

    async def draw(self) -> str:
        """Return the task's area as PNG in base64."""
        ...

    async def close(self) -> None:
        """Give the page back; a second call does nothing."""
        ...


class Pages(Protocol):
    """What opens pages."""

    async def open(self, task: str, seed: int) -> OpenPage:
        """Return a page on which an episode has begun. Raises PageLost, and ConfigError as `Browser.open` does."""
        ...


def find_element(view: View, step: Step) -> Element:
    """Return the element of a step. Raises ToolFailure if it is not there or cannot do it."""
    if not 1 <= step.number <= len(view.elements):
        raise ToolFailure(f"no element {str(step.number)[:8]}")
    element = view.elements[step.number - 1]
    wanted = {"type": ("field", "area"), "select": ("list",)}.get(step.verb, (element.kind,))
    if element.kind not in wanted:
        raise ToolFailure(f"{step.number} is no {wanted[0]}")
    return element


class PagePool:
    """Implements `Pages`: a browser whose pages are handed on from episode to episode, to the same task first. For any
    thread and event loop."""

    def __init__(self, max_pages: int, *, reuse: bool) -> None:
        settings = BrowserSettings(max_pages=max_pages)
        self.browser = Browser(settings)
        """Of this pool alone."""
        self._reuse = reuse
        self._places: Places[_Used] = Places(max_pages, wait_s=settings.queue_s)

    async def open(self, task: str, seed: int) -> TaskPage:
        """See `Pages`."""
        used = await self._places.take(lambda each: each.task == task)
        try:
            if used is None:
                used = _Used(await self.browser.open(find_html(), _path(task), frozen=False), task)
            elif used.task != task:
                await used.page.run(("goto", _path(task)))
                used.task = task
            found = await used.page.run(("evaluate", START, str(seed)), ("evaluate", LOOK, None))
        except BaseException:
            await self.give_back(used, is_good=False)
            raise
        used.num_episodes += 1
        return TaskPage(self, used, read_view(found[1]))

    async def give_back(self, used: _Used | None, *, is_good: bool) -> None:
        """Keep a page for another episode, or close it."""
        keep = used and is_good and self._reuse and used.num_episodes < _MOST_EPISODES and used.page.is_alive
        try:
            if used is not None and not keep:
                await used.page.close()
        finally:
            self._places.give(used if keep else None)


_shared: weakref.WeakValueDictionary[tuple[int, bool], PagePool] = weakref.WeakValueDictionary()
# A fork has the parent's pipes: what it asked there would go to the parent's browser.
os.register_at_fork(after_in_child=_shared.clear)


def share_pool(max_pages: int, *, reuse: bool) -> PagePool:
    """Return the pool of this process with these settings; its browser ends when nobody holds it."""
    with _sharing:
        pool = _shared.get((max_pages, reuse))
        if pool is None:
            pool = _shared[max_pages, reuse] = PagePool(max_pages, reuse=reuse)
        return pool


class TaskPage:
    """Implements `OpenPage`. Made by `PagePool.open`; single use."""

    def __init__(self, pool: PagePool, used: _Used, view: View) -> None:
        self._pool = pool
        self._used: _Used | None = used
        self._page = used.page
        self.view = view
        """See `OpenPage`."""
        self._is_good = True

    async def act(self, step: Step) -> View:
        """See `OpenPage`."""
        element = find_element(self.view, step)
        if step.verb == "select":
            if step.text not in element.options:
                raise ToolFailure(f"{step.number} has no option {step.text[:40]}")
            return await self._run(("evaluate", CHOOSE, {**_wanted(element), "option": step.text}))
        if step.verb == "click":
            return await self._run(("pick", PLACE, _wanted(element)))
        return await self._run(("pick", PLACE, _wanted(element)), ("keys", step.text, False))

    async def click_at(self, x: int, y: int) -> View:
        """See `OpenPage`."""
        if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
            raise ToolFailure(f"x is 0 to {WIDTH - 1}, y is 0 to {HEIGHT - 1}")
        return await self._run(("mouse", x, y))

    async def draw(self) -> str:
        """See `OpenPage`."""
        return str((await self._page.run(("picture", WIDTH, HEIGHT)))[0])

    async def close(self) -> None:
        """See `OpenPage`."""
        used, self._used = self._used, None
        if used is not None:
            await self._pool.give_back(used, is_good=self._is_good)

    async def _run(self, *steps: tuple[Any, ...]) -> View:
        self._is_good = False  # unless the answer comes
        found = await self._page.run(*steps, ("settle",), ("evaluate", LOOK, None))
        self._is_good = True
        self.view = read_view(found[-1])
        if (not self.view.is_done and found[0] is None) or found[0] is False:
            raise ToolFailure("it is gone")
        return self.view


def _path(task: str) -> str:
    return f"/miniwob/{task}.html"


def _wanted(element: Element) -> dict[str, Any]:
    return {"place": element.place, "tag": element.tag, "name": element.name}
