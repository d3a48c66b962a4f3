"""The protocol over HTTP, on the loopback interface.

| request | answer |
|---|---|
| `POST /get_observation` | the outcomes of a batch of actions |
| `GET /health` | `{"status": "healthy", ...}` with what the server is asked to say |

Errors are `{"detail": "..."}`: 400 malformed request, 403 a request of another machine's page, 404 unknown path,
413 body too large. The protocol has no authentication: every user of this machine can use the server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from turnwise.core.errors import EnvironmentFault
from turnwise.tools.verl_tool.wire import PATH, Action, Outcome, read_request, write_response
from turnwise_sandbox.remote.connection import Answer, Head, Listener, Policy

HOST = "127.0.0.1"
MAX_BODY_BYTES = 16 << 20
MAX_CONNECTIONS = 1024
_LOCAL_NAMES = (HOST, "localhost")

Observe = Callable[[Sequence[Action]], Awaitable[Sequence[Outcome]]]


class ActionServer:
    """Serves `observe` between `start` and `close`."""

    def __init__(self, observe: Observe, health: Callable[[], Mapping[str, Any]]) -> None:
        """`observe` gives one outcome per action and raises nothing; `health` is what `/health` says besides."""
        self._observe = observe
        self._health = health
        policy = Policy(
            admit=_admit,
            respond=self._respond,
            refuse=_refuse,
            max_body_bytes=MAX_BODY_BYTES,
            idle_s=60.0,
            transfer_s=60.0,
        )
        self._listener = Listener(policy, MAX_CONNECTIONS)

    async def start(self, port: int = 0) -> str:
        """Listen; returns the URL that clients post to. Port 0 takes a free one.

        Raises EnvironmentFault when the port is taken.
        """
        try:
            return await self._listener.start(HOST, port) + PATH
        except OSError as cause:
            raise EnvironmentFault(f"port {port} of {HOST} cannot be used: {cause.strerror}; choose another") from cause

    async def close(self) -> None:
        """Stop listening and end every request. A second call does nothing."""
        await self._listener.close()

    async def _respond(self, head: Head, body: bytes) -> Answer:
        match (head.method, *head.path):
            case ("GET", "health"):
                return Answer(status=200, body=json.dumps({"status": "healthy", **self._health()}).encode())
            case ("POST", "get_observation"):
                started = time.perf_counter()
                try:
                    actions = read_request(body)
                except ValueError as cause:
                    return _refuse(400, str(cause))
                outcomes = await self._observe(actions)
                return Answer(status=200, body=write_response(outcomes, time.perf_counter() - started))
        return _refuse(404, f"this server has no {head.method} /{'/'.join(head.path)}; post to {PATH}")


def _admit(head: Head) -> Answer | None:
    """Refuse what a web page sends: a Host or an Origin of another name."""
    host = urlsplit(f"//{head.headers.get('host', '')}").hostname
    origin = head.headers.get("origin")
    if host in _LOCAL_NAMES and (origin is None or urlsplit(origin).hostname in _LOCAL_NAMES):
        return None
    return _refuse(403, f"this server is for programs of its own machine; use http://{HOST}")


def _refuse(status: int, message: str) -> Answer:
    return Answer(status=status, body=json.dumps({"detail": message}).encode())
