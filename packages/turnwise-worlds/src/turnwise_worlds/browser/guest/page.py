"""One page of the browser in the jail: a context of its own, steps that are carried out one after the other, and what
the page tried meanwhile."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

from turnwise_worlds.browser.guest.server import COOKIE

_TOLD = "turnwise tells: "
_FROZEN = """
const fixed = 1600000000000, Real = Date;
window.Date = class extends Real { constructor(...given) { super(...(given.length ? given : [fixed])); }
  static now() { return fixed; } };
let state = 1;
Math.random = () => { state = (state * 48271) % 2147483647; return state / 2147483647; };
performance.now = () => 0;
"""
"""The time stands still, and random numbers are the same on every page."""
_REFUSALS = f"""
(() => {{
  const debug = console.debug.bind(console);
  const tell = (tried = "permission") => debug("{_TOLD}" + tried);
  const deny = new DOMException("denied", "NotAllowedError");
  const refuse = () => {{ tell(); return Promise.reject(deny); }};
  if (navigator.geolocation) for (const name of ["getCurrentPosition", "watchPosition"])
    Geolocation.prototype[name] = (good, bad) => {{ tell(); if (bad) bad({{code: 1, message: "denied"}}); return 0; }};
  if (window.Notification) Notification.requestPermission = () => {{ tell(); return Promise.resolve("denied"); }};
  const askers = {{
    MediaDevices: ["getUserMedia", "getDisplayMedia"], Clipboard: ["read", "readText"], StorageManager: ["persist"],
    USB: ["requestDevice"], Bluetooth: ["requestDevice"], Serial: ["requestPort"], HID: ["requestDevice"],
  }};
  for (const [kind, names] of Object.entries(askers))
    for (const name of names) if (window[kind] && name in window[kind].prototype) window[kind].prototype[name] = refuse;
  if (navigator.requestMIDIAccess) navigator.requestMIDIAccess = refuse;
  window.open = () => {{ tell("popup"); return null; }};
  const own = ["", "_self", "_top", "_parent"];
  const stop = (event, target) => {{
    if (own.includes(target) || document.getElementsByName(target).length) return;
    event.preventDefault();
    tell("popup");
  }};
  addEventListener("click", event => {{
    const link = event.target.closest && event.target.closest("a[target], area[target]");
    if (link) stop(event, link.target);
  }}, true);
  addEventListener("submit", event => {{
    stop(event, (event.submitter && event.submitter.formTarget) || event.target.target);
  }}, true);
  delete window.showOpenFilePicker; delete window.showSaveFilePicker; delete window.showDirectoryPicker;
  window.print = () => {{}};
}})();
"""
"""Permissions and windows are refused at once, and the refusal is told; a page that forges it is only refused."""
_MEASURE = "() => document.documentElement ? document.documentElement.innerHTML.length : 0"


class Lost(Exception):
    """The page is gone: an outcome of `PageLost` and a detail."""


class GuestPage:
    """A context with one page."""

    def __init__(self, guest: Any, key: str) -> None:
        self._guest = guest
        self.key = key
        self.is_too_large = False
        self._crashed = False
        self._tried: list[str] = []
        self._num_loading = 0

    async def open(self, path: str, *, frozen: bool) -> None:
        """Make the context and go to the first page."""
        guest = self._guest
        self._context = await guest.browser.new_context(**guest.context_options)
        origin = guest.server.origin
        cookie = {"name": COOKIE, "value": self.key, "url": origin, "httpOnly": True, "sameSite": "Strict"}
        await self._context.add_cookies([cookie])
        await self._context.add_init_script((_FROZEN if frozen else "") + _REFUSALS)
        self._page = page = await self._context.new_page()
        self._context.on("page", self._close_popup)
        page.on("dialog", self._dismiss)
        page.on("download", lambda _: self._tried.append("download"))
        page.on("crash", lambda _: setattr(self, "_crashed", True))
        page.on("console", self._read_console)
        page.on("request", self._note_request)
        await self.goto(path)
        await self._check()

    async def act(self, steps: list[list[Any]]) -> tuple[list[Any], list[str]]:
        """Carry out steps; returns their values and what the page tried."""
        values = []
        for name, *arguments in steps:
            if self._crashed:
                raise Lost("crash", "the page's renderer died")
            values.append(await getattr(self, f"step_{name}")(*arguments))
        await self._check()
        tried, self._tried = self._tried, []
        return values, tried

    async def close(self) -> None:
        """Close the context with everything in it."""
        with contextlib.suppress(AttributeError):  # it was never made
            await self._context.close()

    async def goto(self, path: str) -> None:
        """Go to a path of the site and wait until it is loaded."""
        try:
            await self._page.goto(self._guest.server.origin + path, wait_until="load", timeout=0)
        except Exception as error:
            if "net::ERR_ABORTED" not in str(error):  # a download, or an answer without content: the page stays
                raise

    async def step_goto(self, path: str) -> None:
        await self.goto(path)

    async def step_back(self) -> bool:
        return await self._page.go_back(wait_until="load", timeout=0) is not None

    async def step_mouse(self, x: float, y: float) -> None:
        await self._page.mouse.click(x, y)

    async def step_click(self, role: str, ordinal: int) -> None:
        await self._page.get_by_role(role).nth(ordinal).click(timeout=0)

    async def step_fill(self, role: str, ordinal: int, text: str, enter: bool) -> None:
        box = self._page.get_by_role(role).nth(ordinal)
        await box.fill(text, timeout=0)
        if enter:
            await box.press("Enter", timeout=0)

    async def step_choose(self, role: str, ordinal: int, option: str) -> None:
        await self._page.get_by_role(role).nth(ordinal).select_option(label=option, timeout=0)

    async def step_count(self, role: str) -> int:
        return int(await self._page.get_by_role(role).count())

    async def step_keys(self, text: str, enter: bool) -> None:
        await self._page.keyboard.press("Control+A")
        await self._page.keyboard.type(text)
        if enter:
            await self._page.keyboard.press("Enter")

    async def step_pick(self, script: str, argument: Any) -> bool:
        """Click at the place [x, y] that a script returns; False if it returns none."""
        place = await self._page.evaluate(script, argument)
        if place:
            await self._page.mouse.click(*place)
        return bool(place)

    async def step_wheel(self, dy: float) -> None:
        await self._page.mouse.wheel(0, dy)

    async def step_evaluate(self, script: str, argument: Any) -> Any:
        return await self._page.evaluate(script, argument)

    async def step_aria(self) -> str:
        return str(await self._page.locator("body").aria_snapshot(timeout=0))

    async def step_url(self) -> str:
        return str(self._page.url).removeprefix(self._guest.server.origin)

    async def step_picture(self, width: int, height: int) -> str:
        clip = {"x": 0, "y": 0, "width": width, "height": height}
        png = await self._page.screenshot(clip=clip, animations="disabled", caret="hide", timeout=0)
        return base64.b64encode(png).decode()

    async def step_settle(self) -> None:
        """Wait until what an action started has been loaded; leave a site that cannot be reached."""
        while True:
            started = self._num_loading
            try:
                await self._page.evaluate("() => new Promise(done => setTimeout(done, 0))")
                await self._page.wait_for_load_state("load", timeout=0)
            except Exception as error:
                if self._crashed or "crashed" in str(error):
                    raise Lost("crash", "the page's renderer died") from None
                if "navigat" not in str(error) and "destroyed" not in str(error):
                    raise
                continue
            if started == self._num_loading:
                break
        if not self._page.url.startswith(self._guest.server.origin + "/"):
            self._tried.append("foreign")
            await self._page.go_back(wait_until="load", timeout=0)

    async def _check(self) -> None:
        if not self.is_too_large:
            length = await self._page.evaluate(_MEASURE)
            self.is_too_large = length > self._guest.settings["max_page_bytes"]
        if self.is_too_large:
            raise Lost("size", f"a page of more than {self._guest.settings['max_page_bytes']:,} bytes")

    async def _close_popup(self, page: Any) -> None:
        if page is not self._page:
            self._tried.append("popup")
            with contextlib.suppress(Exception):
                await page.close()

    async def _dismiss(self, dialog: Any) -> None:
        self._tried.append("dialog")
        with contextlib.suppress(Exception):
            await (dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())

    def _read_console(self, message: Any) -> None:
        if message.text.startswith(_TOLD):
            self._tried.append(message.text.removeprefix(_TOLD))

    def _note_request(self, request: Any) -> None:
        if request.is_navigation_request() and request.frame == self._page.main_frame:
            self._num_loading += 1
