"""What pages do that they should not, tried in the real browser: each has a name, and the browser lives on."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from turnwise_worlds.browser.browser import Browser, BrowserPage
from turnwise_worlds.browser.outcomes import PageLost, PageRefused
from turnwise_worlds.browser.processes import find_descendants, wait_for_end
from turnwise_worlds.browser.settings import BrowserSettings
from turnwise_worlds.browser.wire import Asked, Replied
from turnwise_worlds.programs import BROWSER

pytest.importorskip("playwright")
pytestmark = pytest.mark.system
T = TypeVar("T")
PRESS = (("click", "button", 0), ("settle",))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser whose actions may take two seconds."""
    try:
        BROWSER.find()
    except ValueError:
        pytest.skip("chromium-headless-shell is missing")
    browser = Browser(BrowserSettings(action_s=2.0, max_pages=2))
    yield browser
    browser.close()


def serve(body: str) -> Callable[[Asked], Replied]:
    """A site whose every page has this body."""
    return lambda asked: Replied(200, f"<!DOCTYPE html><title>page</title>{body}", "")


def use(browser: Browser, body: str, work: Callable[[BrowserPage], Awaitable[T]]) -> T:
    """Open a page with this body, work on it, and show that another page can still be opened and operated."""

    async def run() -> T:
        page = await browser.open(serve(body))
        try:
            return await work(page)
        finally:
            await page.close()
            other = await browser.open(serve("<button>fine</button>"))
            assert await other.run(*PRESS, ("aria",)) == [None, None, '- button "fine"']
            await other.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("tried", "body"),
    [
        ("popup", "<button onclick=\"window.open('/x')\">b</button>"),
        ("popup", "<button onclick=\"document.querySelector('a').click()\">b</button><a href=/x target=_blank>a</a>"),
        ("popup", "<form action=/x target=_blank><button>b</button></form>"),
        ("download", "<button onclick=\"document.querySelector('a').click()\">b</button><a href=/x download>a</a>"),
        ("permission", "<button onclick='navigator.geolocation.getCurrentPosition(() => 0)'>b</button>"),
        ("permission", "<button onclick='Notification.requestPermission()'>b</button>"),
        ("permission", "<button onclick='navigator.clipboard.readText().catch(() => 0)'>b</button>"),
        ("dialog", "<button onclick='alert(1)'>b</button>"),
        ("dialog", "<button onclick='document.title = String(confirm(1))'>b</button>"),
        ("dialog", "<button onclick='document.title = String(prompt(1))'>b</button>"),
        ("foreign", "<button onclick=\"location = 'http://192.0.2.1/'\">b</button>"),
        ("foreign", "<button onclick=\"location = 'http://localhost:1/'\">b</button>"),
        ("foreign", "<button onclick=\"location = 'about:blank'\">b</button>"),
    ],
)
def test_what_a_page_tries_is_refused_by_name_and_the_page_stays(browser: Browser, tried: str, body: str) -> None:
    async def work(page: BrowserPage) -> None:
        with pytest.raises(PageRefused) as refused:
            await page.run(*PRESS)
        assert refused.value.tried == tried
        (role,) = await page.run(("count", "button"))
        assert role == 1

    use(browser, body, work)


def test_a_page_that_asks_before_it_is_left_is_left(browser: Browser) -> None:
    body = "<button onclick='onbeforeunload = () => \"stay\"'>b</button><a href=/next>a</a>"

    async def work(page: BrowserPage) -> Any:
        await page.run(*PRESS)
        with pytest.raises(PageRefused) as refused:
            await page.run(("click", "link", 0), ("settle",))
        assert refused.value.tried == "dialog"
        return (await page.run(("url",)))[0]

    assert use(browser, body, work) == "/next"


@pytest.mark.parametrize(
    ("outcome", "body"),
    [
        ("deadline", "<button onclick='for (;;);'>b</button>"),
        ("deadline", "<button onclick='while (true) alert(1)'>b</button>"),
        ("size", "<button onclick='document.head.append(\"x\".repeat(5e7))'>b</button>"),
    ],
)
def test_a_page_that_cannot_be_used_ends_the_episode(browser: Browser, outcome: str, body: str) -> None:
    async def work(page: BrowserPage) -> str:
        with pytest.raises(PageLost) as lost:
            await page.run(*PRESS)
        return lost.value.outcome

    assert use(browser, body, work) == outcome


def test_a_page_of_50_megabytes_is_not_shown(browser: Browser) -> None:
    async def open_page() -> None:
        await (await browser.open(serve("x" * 50_000_000))).close()

    with pytest.raises(PageLost, match="size"):
        asyncio.run(open_page())


def test_a_page_that_never_loads_runs_past_the_deadline(browser: Browser) -> None:
    release = threading.Event()

    def stall(asked: Asked) -> Replied:
        release.wait(30)
        return Replied(200, "", "")

    async def open_page() -> None:
        await browser.open(stall)

    with pytest.raises(PageLost, match="deadline: no answer within 2 s"):
        asyncio.run(open_page())
    release.set()
    assert use(browser, "<button>b</button>", lambda page: page.run(("count", "button"))) == [1]


def test_a_renderer_that_dies_costs_its_page_alone(browser: Browser) -> None:
    async def run() -> None:
        page, other = await browser.open(serve("<button>one</button>")), None
        first = _renderers(browser)
        other = await browser.open(serve("<button>two</button>"))
        (second,) = _renderers(browser) - first
        os.kill(second, signal.SIGKILL)
        with pytest.raises(PageLost) as lost:
            await other.run(*PRESS)
        assert lost.value.outcome == "crash"
        assert (await page.run(*PRESS, ("aria",)))[-1] == '- button "one"'
        await other.close()
        await page.close()

    asyncio.run(run())


def test_a_browser_that_dies_costs_its_pages_and_is_replaced(browser: Browser) -> None:
    async def run() -> None:
        page = await browser.open(serve("<button>one</button>"))
        (pid,) = browser.pids()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(PageLost) as lost:
            await page.run(*PRESS)
        assert lost.value.outcome == "browser"
        await page.close()
        page = await browser.open(serve("<button>one</button>"))
        assert (await page.run(*PRESS, ("aria",)))[-1] == '- button "one"'
        assert browser.pids() != [pid]
        await page.close()

    asyncio.run(run())


def test_two_pages_share_no_cookies_and_reach_no_other_site(browser: Browser) -> None:
    read = "<button onclick='document.title = document.cookie || \"none\"'>b</button>"

    async def run() -> list[Any]:
        titles = []
        for body in ("<script>document.cookie = 'a=1'</script>" + read, read):
            page = await browser.open(serve(body))
            titles.append((await page.run(*PRESS, ("evaluate", "() => document.title", None)))[-1])
            await page.close()
        return titles

    # The cookie that names the site is not shown to pages.
    assert asyncio.run(run()) == ["a=1", "none"]


def test_the_clock_stands_and_random_numbers_repeat(browser: Browser) -> None:
    script = "() => [Date.now(), new Date().getTime(), performance.now(), Math.random(), Math.random()]"

    async def read(page: BrowserPage) -> Any:
        return (await page.run(("evaluate", script, None)))[0]

    first = use(browser, "", read)
    assert first[:3] == [1_600_000_000_000, 1_600_000_000_000, 0]
    assert first == use(browser, "", read)


def test_no_more_pages_than_allowed_are_open_and_others_wait(browser: Browser) -> None:
    async def run() -> tuple[int, int]:
        pages = [await browser.open(serve("")) for _ in range(2)]
        third = asyncio.ensure_future(browser.open(serve("<button>late</button>")))
        await pages[0].run(("aria",))
        waited = third.done()
        await pages[0].close()
        late = await third
        count = (await late.run(("count", "button")))[0]
        await pages[1].close()
        await late.close()
        return waited, count

    assert asyncio.run(run()) == (False, 1)


def test_a_used_up_browser_is_replaced_and_ends(browser: Browser) -> None:
    own = Browser(BrowserSettings(pages_per_browser=1, max_pages=2))

    async def run() -> None:
        first = await own.open(serve("<button>one</button>"))
        (old,) = own.pids()
        second = await own.open(serve("<button>two</button>"))
        assert len(own.pids()) == 2
        assert (await first.run(*PRESS, ("aria",)))[-1] == '- button "one"'
        await first.close()
        assert old not in own.pids()
        await second.close()

    asyncio.run(run())
    pids = [each for pid in own.pids() for each in find_descendants(pid)]
    own.close()
    assert pids
    assert wait_for_end(pids, 0.0) == []


def _renderers(browser: Browser) -> set[int]:
    found = set()
    for top in browser.pids():
        for pid in find_descendants(top):
            if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found
