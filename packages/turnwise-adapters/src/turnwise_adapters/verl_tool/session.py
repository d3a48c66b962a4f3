"""One trajectory on a server of the protocol, with the interface of a session with any other tool server.

An action is sent once: a server may have run it although no answer arrived. Every wait is limited by the caller's
deadline or `CLOSE_S`, and an answer larger than `MAX_ANSWER_BYTES` is not read to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from turnwise.core.errors import EnvironmentFault, ToolFailure
from turnwise_adapters.verl_tool.servers import VerlToolServer
from turnwise_adapters.verl_tool.wire import Action, Outcome, read_response, write_request

CLOSE_S = 10.0
"""Seconds allowed for telling the server that a trajectory is over."""
MAX_ANSWER_BYTES = 16 << 20


class TrajectorySession:
    """A trajectory. `open` once, `call` from any task of the same event loop, `close` at the end."""

    def __init__(self, server: VerlToolServer, label: str) -> None:
        """`label` names the server in messages."""
        self.label = label
        self.tools: tuple[Mapping[str, Any], ...] = tuple(tool.to_wire(name) for name, tool in server.tools.items())
        self.is_over = False
        """The server has ended the trajectory."""
        self._server = server
        self._trajectory = uuid.uuid4().hex
        self._client: httpx.AsyncClient | None = None
        self._has_state = False

    @property
    def is_alive(self) -> bool:
        """Whether the session is open and its trajectory is not over."""
        return self._client is not None and not self.is_over

    async def open(self, timeout_s: float) -> None:
        """Check that a server is there. Raises EnvironmentFault when none responds within `timeout_s`.

        Any answer on `/health` is accepted: servers of older versions do not have it.
        """
        verify = _trusted() if self._server.url.startswith("https:") else False
        self._client = httpx.AsyncClient(timeout=None, verify=verify, trust_env=False)
        try:
            async with asyncio.timeout(timeout_s), self._client.stream("GET", _health_url(self._server.url)):
                pass
        except TimeoutError:
            await self.close()
            raise EnvironmentFault(
                f"tool server {self.label!r} at {self._server.url} did not answer within {timeout_s:g} s; check that "
                "it runs, or raise environment.args.connect_timeout_s"
            ) from None
        except httpx.HTTPError as cause:
            await self.close()
            raise EnvironmentFault(
                f"tool server {self.label!r} at {self._server.url} cannot be reached: {_describe(cause)}; start it"
            ) from cause

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Send a call as an action; returns the observation as a result of the Model Context Protocol, as for all
        calls.

        Raises ToolFailure when the server rejects the action as invalid, EnvironmentFault when it fails or does not
        speak the protocol.
        """
        tool = self._server.tools[name]
        text = tool.action.format(**arguments)
        extra = {parameter: arguments[parameter] for parameter in tool.extra}
        outcome = await self._send(Action(trajectory=self._trajectory, text=text, extra=extra))
        self.is_over = outcome.is_done
        if outcome.is_fault:
            raise EnvironmentFault(f"tool server {self.label!r} failed in {name!r}: {outcome.problem[:500]}")
        if not outcome.is_valid:
            raise ToolFailure(outcome.text.strip() or outcome.problem or "the server found no valid action")
        return {"content": [{"type": "text", "text": outcome.text.strip("\n")}]}

    async def close(self) -> None:
        """Tell the server that the trajectory is over, within `CLOSE_S`, and close the connection.

        A server that cannot be reached keeps the state until it drops it by itself. A second call does nothing.
        """
        client = self._client
        if client is None:
            return
        try:
            if self._has_state and not self.is_over:
                with contextlib.suppress(EnvironmentFault, TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        await self._send(Action(trajectory=self._trajectory, text="", is_finish=True))
        finally:
            self._client = None
            await client.aclose()

    async def _send(self, action: Action) -> Outcome:
        if self._client is None:
            raise EnvironmentFault(f"tool server {self.label!r} was used outside its session; open it first")
        self._has_state = True
        body = write_request([action])
        received = bytearray()
        try:
            headers = {"content-type": "application/json"}
            async with self._client.stream("POST", self._server.url, content=body, headers=headers) as response:
                async for chunk in response.aiter_bytes():
                    received += chunk
                    if len(received) > MAX_ANSWER_BYTES:
                        raise EnvironmentFault(
                            f"tool server {self.label!r} sent an answer longer than {MAX_ANSWER_BYTES} bytes"
                        )
        except httpx.HTTPError as cause:
            raise EnvironmentFault(f"tool server {self.label!r} did not answer: {_describe(cause)}") from cause
        if response.status_code != 200:
            said = bytes(received[:300]).decode("utf-8", "replace")
            raise EnvironmentFault(f"tool server {self.label!r} answered with status {response.status_code}: {said}")
        try:
            (outcome,) = read_response(bytes(received), 1)
        except ValueError as cause:
            raise EnvironmentFault(f"the answer of tool server {self.label!r} violates the protocol: {cause}") from None
        return outcome


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Return the system's certificates, read once."""
    return ssl.create_default_context()


def _health_url(url: str) -> str:
    target = urlsplit(url)
    return urlunsplit((target.scheme, target.netloc, "/health", "", ""))


def _describe(cause: Exception) -> str:
    return f"{type(cause).__name__}: {cause}"[:300]
