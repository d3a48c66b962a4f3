"""Serves a gateway on the loopback interface of this machine (extra `serve`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from turnwise.core.errors import ConfigError, EnvironmentFault
from turnwise.gateway.gateway import Gateway
from turnwise.gateway.http import Application
from turnwise.hosts.local import LOOPBACK
from turnwise.hosts.loopback import open_listener

START_S, CLOSE_S = 30.0, 5.0


class GatewayServer:
    """Listens between `start` and `close`, on the event loop that starts it. Every user of this machine can connect;
    keys tell sessions apart."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.url = ""
        """The root, without a slash at its end; empty before the start."""
        self._server: Any = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, port: int = 0) -> str:
        """Listen; returns the root URL. Port 0 takes a free one.

        Raises EnvironmentFault when the port is taken or the server ends, ConfigError when uvicorn is missing.
        """
        try:
            import uvicorn
        except ImportError:
            raise ConfigError("serving needs uvicorn: pip install 'turnwise[serve]'") from None

        class Quiet(uvicorn.Server):  # type: ignore[misc]
            """Leaves signals to the program that serves."""

            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

        listener = open_listener(port)
        config = uvicorn.Config(
            Application(self.gateway),
            lifespan="off",
            log_level="error",
            access_log=False,
            http="h11",
            ws="none",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
        )
        self._server = Quiet(config)
        self._task = asyncio.ensure_future(self._server.serve(sockets=[listener]))
        async with asyncio.timeout(START_S):
            while not self._server.started and not self._task.done():
                await asyncio.sleep(0.005)
        if not self._server.started:
            raise EnvironmentFault("the gateway's server ended before it listened")
        self.url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        return self.url

    async def close(self) -> None:
        """End every session and stop listening. A second call does nothing."""
        await self.gateway.close()
        task, self._task = self._task, None
        if task is None:
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait({task}, timeout=CLOSE_S)
        if not done:
            self._server.force_exit = True
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_S)
