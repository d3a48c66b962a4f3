"""The protocol over HTTP, on the loopback interface.

| request | answer |
|---|---|
| `POST /get_observation` | the outcomes of a batch of actions |
| `GET /health` | `{"status": "healthy", ...}` with what the server is asked to say |

Errors are `{"detail": "..."}`: 400 malformed request, 403 a request from another machine's page, 404 unknown path, 413
body too large. The protocol has no authentication: every user of this machine can use the server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from turnwise.serving.loopback import Answer, Head, LoopbackServer, refuse
from turnwise_adapters.verl_tool.wire import PATH, Action, Outcome, read_request, write_response

MAX_BODY_BYTES = 16 << 20

Observe = Callable[[Sequence[Action]], Awaitable[Sequence[Outcome]]]


class ActionServer:
    """Serves `observe` between `start` and `close`."""

    def __init__(self, observe: Observe, health: Callable[[], Mapping[str, Any]]) -> None:
        """`observe` returns one outcome per action and never raises; `health` returns further fields of `/health`."""
        self._observe = observe
        self._health = health
        self._server = LoopbackServer(self._respond, max_body_bytes=MAX_BODY_BYTES)

    async def start(self, port: int = 0) -> str:
        """Start listening. Returns the URL to which clients post. Port 0 chooses a free one.

        Raises EnvironmentFault if the port is in use.
        """
        return await self._server.start(port) + PATH

    async def close(self) -> None:
        """Stop listening and end every request. A second call does nothing."""
        await self._server.close()

    async def _respond(self, head: Head, body: bytes) -> Answer:
        match (head.method, *head.path):
            case ("GET", "health"):
                return Answer(status=200, body=json.dumps({"status": "healthy", **self._health()}).encode())
            case ("POST", "get_observation"):
                started = time.perf_counter()
                try:
                    actions = read_request(body)
                except ValueError as cause:
                    return refuse(400, str(cause))
                outcomes = await self._observe(actions)
                return Answer(status=200, body=write_response(outcomes, time.perf_counter() - started))
        return refuse(404, f"this server has no {head.method} /{'/'.join(head.path)}; post to {PATH}")
