"""The site over HTTP on loopback, read by a client without a screen."""

from __future__ import annotations

import http.client

from turnwise.core.errors import EnvironmentFault
from turnwise.core.threads import run_in_thread
from turnwise_worlds.web.actions import Action
from turnwise_worlds.web.addresses import encode_fields
from turnwise_worlds.web.client import History, plan_move
from turnwise_worlds.web.page import Page
from turnwise_worlds.web.server import COOKIE, shared_server
from turnwise_worlds.web.site.handle import Request
from turnwise_worlds.web.site.state import State
from turnwise_worlds.web.snapshot import extract
from turnwise_worlds.web.surfaces.surface import Seen, SurfaceError
from turnwise_worlds.web.surfaces.text import HOME, after

DEADLINE_S = 10.0
"""Seconds that one request may take."""
MOST_REDIRECTS = 3


class HttpSurface:
    """Implements `Surface`."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._visit = ""
        self._at: tuple[Page, History] | None = None
        self._closed: State | None = None

    @property
    def state(self) -> State:
        """See `Surface`."""
        if self._closed is not None:
            return self._closed
        if not self._visit:
            raise EnvironmentFault("the surface is not open; open it before acting")
        return shared_server().state_of(self._visit)

    async def open(self, state: State) -> Seen:
        """See `Surface`."""
        self._visit = shared_server().admit(state)
        return await run_in_thread(lambda: self._ask(HOME, History(urls=(HOME.path,))))

    async def act(self, action: Action) -> Seen:
        """See `Surface`."""
        if self._at is None:
            raise EnvironmentFault("the surface is not open; open it before acting")
        move = plan_move(*self._at, action)
        request = move.request
        if request is None:
            self._at = (move.page, move.history)
            return Seen(page=move.page, url=move.history.urls[-1])
        seen = await run_in_thread(lambda: self._ask(request, move.history))
        self._at = (seen.page, after(move, seen.url))
        return seen

    async def close(self) -> None:
        """See `Surface`."""
        if self._visit and self._closed is None:
            self._closed = self.state
            shared_server().dismiss(self._visit)

    def _ask(self, request: Request, history: History) -> Seen:
        """Send a request and follow where it leads, on a connection of its own."""
        method, path, body = request.method, request.path, encode_fields(request.fields)
        if method == "GET" and request.fields:
            path = f"{path.partition('?')[0]}?{body}"
        for _ in range(MOST_REDIRECTS):
            status, text, location = self._exchange(method, path, body if method == "POST" else None)
            if status == 303:
                method, path = "GET", location
                continue
            if status != 200:
                raise SurfaceError(f"the site answered {status} to {method} {path[:100]}")
            page = extract(text)
            self._at = (page, history)
            return Seen(page=page, url=path)
        raise SurfaceError(f"{path[:100]} leads on for ever")

    def _exchange(self, method: str, path: str, body: str | None) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", shared_server().port, timeout=DEADLINE_S)
        headers = {"Cookie": f"{COOKIE}={self._visit}", "Content-Type": "application/x-www-form-urlencoded"}
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8"), response.headers.get("Location", "")
        except (OSError, http.client.HTTPException, ValueError) as cause:
            raise SurfaceError(f"the site did not answer {method} {path[:100]}: {type(cause).__name__}") from cause
        finally:
            connection.close()
