"""HTTP for programs on this machine: a server on the loopback interface that refuses web pages.

The connection code is that of `turnwise_sandbox`, which is a server too. There is no authentication: every user of this
machine can use the server. Errors are `{"detail": "..."}`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from turnwise.core.errors import EnvironmentFault
from turnwise_sandbox.remote.connection import Answer as Answer
from turnwise_sandbox.remote.connection import Head as Head
from turnwise_sandbox.remote.connection import Listener, Policy

HOST = "127.0.0.1"
MAX_CONNECTIONS = 1024
_LOCAL_NAMES = (HOST, "localhost")

Respond = Callable[[Head, bytes], Awaitable[Answer]]
"""Returns the answer to a request's head and body. Raises nothing."""


class LoopbackServer:
    """Serves `respond` between `start` and `close`. Requests from web pages of other machines are refused with 403."""

    def __init__(self, respond: Respond, *, max_body_bytes: int) -> None:
        """A request with a larger body is refused with 413 before it is read."""
        policy = Policy(
            admit=_admit,
            respond=respond,
            refuse=refuse,
            max_body_bytes=max_body_bytes,
            idle_s=60.0,
            transfer_s=60.0,
        )
        self._listener = Listener(policy, MAX_CONNECTIONS)

    async def start(self, port: int = 0) -> str:
        """Listen; returns the root URL. Port 0 takes a free one. Raises EnvironmentFault when the port is taken."""
        try:
            return await self._listener.start(HOST, port)
        except OSError as cause:
            raise EnvironmentFault(f"cannot use port {port} of {HOST}: {cause.strerror}; choose another") from cause

    async def close(self) -> None:
        """Stop listening and abort every request. A second call does nothing."""
        await self._listener.close()


def refuse(status: int, message: str) -> Answer:
    """Build the answer that says what is wrong with a request."""
    return Answer(status=status, body=json.dumps({"detail": message}).encode())


def _admit(head: Head) -> Answer | None:
    """Refuse requests from web pages: a Host or an Origin with another name."""
    host = urlsplit(f"//{head.headers.get('host', '')}").hostname
    origin = head.headers.get("origin")
    if host in _LOCAL_NAMES and (origin is None or urlsplit(origin).hostname in _LOCAL_NAMES):
        return None
    return refuse(403, f"this server is for programs of its own machine; use http://{HOST}")
