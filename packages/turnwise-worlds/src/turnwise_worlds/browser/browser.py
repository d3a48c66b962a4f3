"""The browser of a run: pages for episodes on any event loop, a fresh jail when one is used up or has died."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from pathlib import Path
from typing import Any

from turnwise.core.packages import require_package
from turnwise.core.threads import run_in_thread
from turnwise_worlds.browser.child import Child, Site
from turnwise_worlds.browser.outcomes import TRIED, PageLost, PageRefused
from turnwise_worlds.browser.places import Places
from turnwise_worlds.browser.settings import BrowserSettings
from turnwise_worlds.programs import BROWSER

_GRACE_S = 5.0
"""Seconds that the jail gets beyond a page's deadline before it counts as dead."""
Step = tuple[Any, ...]
"""A name of `GuestPage.step_...` with its arguments."""


class Browser:
    """Started on first use, ended with `close`, with this object or with the process."""

    def __init__(self, settings: BrowserSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._child: Child | None = None
        self._children: set[Child] = set()
        self._end = weakref.finalize(self, _close_all, self._children)
        self.places: Places[None] = Places(settings.max_pages, wait_s=settings.queue_s)

    async def open(self, site: Site | Path, path: str = "/", *, frozen: bool = True) -> BrowserPage:
        """Open a page in a context of its own, at a path of a folder or of a site that `site` answers.

        `frozen` stops its clock and fixes `Math.random`. Waits while `max_pages` pages are open. Raises ConfigError,
        with the remedy, where the browser is missing or cannot start; PageLost as `BrowserPage.run` does.
        """
        await self.places.take(lambda _: False)
        try:
            child = await run_in_thread(self._find_child)
            page = BrowserPage(self, child)
            await page.open(site, path, frozen)
        except BaseException:
            self.places.give(None)
            raise
        return page

    def close(self) -> None:
        """End everything that was started. A later `open` starts again."""
        with self._lock:
            self._child = None
        _close_all(self._children)

    def pids(self) -> list[int]:
        """Return the processes outside the jails, one for each browser."""
        return [child.pid for child in list(self._children) if child.is_alive]

    def _find_child(self) -> Child:
        with self._starting:
            child = self._child
            if child is not None and child.is_alive and child.num_opened < self.settings.pages_per_browser:
                child.num_opened += 1
                return child
            require_package("playwright", "1.50", "web")
            fresh = Child(BROWSER.find(), self.settings)
            fresh.num_opened = 1
            self._children.add(fresh)
            self._child = fresh
        if child is not None:
            self._retire(child)
        return fresh

    def _retire(self, child: Child) -> None:
        """Close a browser that is used up as soon as it has no page, or has died."""
        if child is not self._child and (not child.is_alive or child.num_pages == 0):
            self._children.discard(child)
            child.close()


class BrowserPage:
    """One page. Made by `Browser.open`; single use."""

    def __init__(self, browser: Browser, child: Child) -> None:
        self._browser = browser
        self._child = child
        self._number = 0
        self._is_open = True
        child.num_pages += 1

    async def open(self, site: Site | Path, path: str, frozen: bool) -> None:
        """See `Browser.open`."""
        child = self._child
        folder = str(site.resolve()) if isinstance(site, Path) else None
        self._number = number = child.take_number()
        if not isinstance(site, Path):
            child.sites[number] = site
        try:
            await self._ask({"do": "open", "page": number, "folder": folder, "path": path, "frozen": frozen})
        except BaseException:
            self._leave()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it is open in a browser that lives and is not used up."""
        child, most = self._child, self._browser.settings.pages_per_browser
        return self._is_open and child.is_alive and child.num_opened < most

    async def run(self, *steps: Step) -> list[Any]:
        """Carry out steps, one after the other; returns their values.

        Raises PageRefused if the page tried what no page may; the steps are done then. Raises PageLost if the page or
        the browser is gone, or they did not answer within `action_s` seconds.
        """
        answer = await self._ask({"do": "act", "page": self._number, "steps": steps})
        for tried in TRIED:
            if tried in answer["tried"]:
                raise PageRefused(tried)
        value: list[Any] = answer["value"]
        return value

    async def close(self) -> None:
        """Close the page; a second call does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            await self._ask({"do": "close", "page": self._number})
        except PageLost:
            pass  # it is closed, in one way or the other
        finally:
            self._leave()
            self._browser.places.give(None)

    def _leave(self) -> None:
        self._child.sites.pop(self._number, None)
        self._child.num_pages -= 1
        self._browser._retire(self._child)

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        seconds = self._browser.settings.action_s
        future = self._child.ask({**message, "seconds": seconds})
        try:
            answer = await asyncio.wait_for(asyncio.wrap_future(future), seconds + _GRACE_S)
        except TimeoutError:
            self._child.kill(f"it did not answer within {seconds + _GRACE_S:g} s")
            raise PageLost("deadline", f"the browser did not answer within {seconds + _GRACE_S:g} s") from None
        if "lost" in answer:
            raise PageLost(*answer["lost"])
        return answer


def _close_all(children: set[Child]) -> None:
    while children:
        children.pop().close()


_shared: dict[BrowserSettings, Browser] = {}
_sharing = threading.Lock()
# A fork has the parent's pipes: what it asked there would go to the parent's browser.
os.register_at_fork(after_in_child=_shared.clear)


def share_browser(settings: BrowserSettings) -> Browser:
    """Return the browser of this process with these settings; it ends with the process."""
    with _sharing:
        return _shared.setdefault(settings, Browser(settings))
