"""The program in the jail: it drives Chromium as lines on its standard input say, and answers on its output.

    {"id": 3, "do": "open", "page": 7, "folder": null, "path": "/", ...}    -> {"id": 3}
    {"id": 4, "do": "act", "page": 7, "steps": [["mouse", 20, 30]]}          -> {"id": 4, "value": [...], "tried": []}
    {"id": 5, "do": "close", "page": 7}
    {"ask": 1, "page": 7, "method": "GET", ...}   (from here)                <- {"answer": 1, "status": 200, ...}

It ends with its input, and everything else in the jail with it. Started by `Child`, never by hand.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from turnwise_worlds.browser import wire
from turnwise_worlds.browser.guest import jail
from turnwise_worlds.browser.guest.page import GuestPage, Lost
from turnwise_worlds.browser.guest.server import SiteServer


class Guest:
    """The pages of one browser."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.server = SiteServer(settings["max_page_bytes"], self._note_size)
        self.context_options: dict[str, Any] = {
            "viewport": {"width": settings["viewport"][0], "height": settings["viewport"][1]},
            "accept_downloads": False,
            "service_workers": "block",
            "locale": "en-US",
            "timezone_id": "UTC",
            "reduced_motion": "reduce",
        }
        self._pages: dict[int, Any] = {}
        self._keys: dict[str, int] = {}
        self._asks = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()

    async def run(self, browser: Any) -> None:
        """Serve until the input ends."""
        self.browser = browser
        browser.on("disconnected", lambda _: os._exit(3))
        await self.server.start()
        reader = asyncio.StreamReader(limit=wire.LINE_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        self.write({"ready": browser.version})
        while line := await reader.readline():
            message = wire.decode(line)
            if "answer" in message:
                future = self._answers.pop(message["answer"], None)
                if future is not None and not future.done():
                    future.set_result(message)
                continue
            job = asyncio.ensure_future(self._do(message))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)

    def write(self, message: dict[str, Any]) -> None:
        """Send a message to the run."""
        with self._lock:
            sys.stdout.buffer.write(wire.encode(message))
            sys.stdout.buffer.flush()

    async def _do(self, message: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": message["id"]}
        page = self._pages.get(message.get("page", 0))
        try:
            async with asyncio.timeout(message["seconds"]):
                if message["do"] == "open":
                    await self._open(message)
                elif page is None:
                    raise Lost("crash", "the page is gone")
                elif message["do"] == "act":
                    answer["value"], answer["tried"] = await page.act(message["steps"])
                else:
                    await self._close(message["page"])
        except TimeoutError:
            answer["lost"] = ("deadline", f"no answer within {message['seconds']:g} s")
        except Lost as lost:
            answer["lost"] = lost.args
        except Exception as error:  # noqa: BLE001 - whatever the driver raises ends this page alone
            answer["lost"] = ("crash", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        self.write(answer)

    async def _open(self, message: dict[str, Any]) -> None:
        number = message["page"]
        site: Any = Path(message["folder"]) if message["folder"] else self._ask_for(number)
        key = self.server.add(site)
        self._keys[key] = number
        page = self._pages[number] = GuestPage(self, key)
        try:
            await page.open(message["path"], frozen=message["frozen"])
        except BaseException:
            self._start(self._close(number))
            raise

    async def _close(self, number: int) -> None:
        page = self._pages.pop(number)
        self.server.remove(page.key)
        self._keys.pop(page.key, None)
        try:
            async with asyncio.timeout(self.settings["action_s"]):
                await page.close()
        except TimeoutError:
            os._exit(4)  # a page that cannot be closed stays with the browser only

    def _start(self, work: Any) -> None:
        job = asyncio.ensure_future(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def _ask_for(self, number: int) -> Any:
        async def ask(asked: wire.Asked) -> wire.Replied:
            ask_number = next(self._asks)
            future = self._answers[ask_number] = asyncio.get_running_loop().create_future()
            self.write({"ask": ask_number, "page": number, **asked._asdict()})
            try:
                answer = await future
            finally:
                self._answers.pop(ask_number, None)
            return wire.Replied(answer["status"], answer["html"], answer["location"])

        return ask

    def _note_size(self, key: str) -> None:
        page = self._pages.get(self._keys.get(key, 0))
        if page is not None:
            page.is_too_large = True


async def _drive(async_playwright: Any, settings: dict[str, Any]) -> None:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=settings["program"],
            chromium_sandbox=True,
            args=settings["flags"],
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        await Guest(settings).run(browser)
        os._exit(0)  # whoever gave the input has ended


def main() -> None:
    """Enter the jail and drive; the settings are the only argument, in JSON."""
    settings = json.loads(sys.argv[1])
    for fd in settings["cgroup_fds"]:
        os.write(fd, b"0")
        os.close(fd)
    packages = tuple(Path(each) for each in settings["packages"])
    sys.path[:0] = jail.enter(settings["scratch_bytes"], packages)
    from playwright.async_api import async_playwright

    jail.become_nobody()
    asyncio.run(_drive(async_playwright, settings))


if __name__ == "__main__":
    main()
