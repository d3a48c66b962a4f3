"""The site over HTTP on loopback: one server for all visits of this process, a state for each, chosen by cookie."""

from __future__ import annotations

import os
import secrets
import threading
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from turnwise_worlds.web.addresses import decode_fields
from turnwise_worlds.web.site.handle import Request, handle
from turnwise_worlds.web.site.state import State

COOKIE = "visit"
"""The name of the cookie whose value `SiteServer.admit` returns."""
MAX_BODY = 100_000
"""Bytes of a form, at most."""
DEADLINE_S = 10.0
"""Seconds that a client may let the server wait."""


class SiteServer:
    """Serves sites to the visits that were admitted; without a visit's cookie there is nothing to see."""

    def __init__(self) -> None:
        """Starts to serve, on a free port."""
        self._states: dict[str, State] = {}
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            site = server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="turnwise-site", daemon=True).start()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._server.server_address[1]

    def admit(self, state: State) -> str:
        """Open a visit of a site in this state; returns its cookie, which cannot be guessed."""
        visit = secrets.token_urlsafe(24)
        with self._lock:
            self._states[visit] = state
        return visit

    def state_of(self, visit: str) -> State:
        """Return the state of an open visit. Raises KeyError."""
        with self._lock:
            return self._states[visit]

    def dismiss(self, visit: str) -> None:
        """Close a visit; a second time does nothing."""
        with self._lock:
            self._states.pop(visit, None)

    def answer(self, visit: str, request: Request) -> tuple[str, str] | None:
        """Answer a request of a visit: the page and its location. None if there is no such visit."""
        with self._lock:
            if visit not in self._states:
                return None
            answer = handle(self._states[visit], request)
            self._states[visit] = answer.state
        return answer.html, answer.location

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


@lru_cache(maxsize=1)
def shared_server() -> SiteServer:
    """Return this process's server; it starts at the first call."""
    return SiteServer()


# A server's thread does not survive a fork: a child would wait for it for ever.
os.register_at_fork(after_in_child=shared_server.cache_clear)


class _Handler(BaseHTTPRequestHandler):
    """Turns HTTP into requests of the site."""

    site: SiteServer
    protocol_version = "HTTP/1.1"
    timeout = DEADLINE_S

    def do_GET(self) -> None:
        self._answer(Request(method="GET", path=self.path))

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            self.close_connection = True
            self._send(413, "too long")
            return
        body = self.rfile.read(int(length)).decode("utf-8", "replace")
        self._answer(Request(method="POST", path=self.path, fields=decode_fields(body)))

    def _answer(self, request: Request) -> None:
        answered = self.site.answer(self._read_visit(), request)
        if answered is None:
            self._send(403, "no such visit")
        elif request.method == "POST":
            self._send(303, "", location=answered[1])
        else:
            self._send(200, answered[0])

    def _read_visit(self) -> str:
        try:
            morsel = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        return morsel.value if morsel else ""

    def _send(self, status: int, text: str, location: str | None = None) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        # A page that a browser keeps would show an old state.
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "default-src 'none'; form-action 'self'")
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing: every page of an episode would be a line."""
