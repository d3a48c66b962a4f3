"""HTTP/1.1 connections of a server, with a limit on every size and every wait. `h11` implements the protocol.

A request can be refused by its head, before its body is read. When a client closes the connection, its work ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

import h11

_CHUNK_BYTES = 1 << 16
_MAX_HEAD_BYTES = 16 << 10
_LINGER_S = 2.0
_MAX_LINGER_CHUNKS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A request without its body."""

    method: str
    path: tuple[str, ...]
    """The percent-decoded parts of the path: `/a/b%2Fc` is `("a", "b/c")`."""
    query: Mapping[str, str]
    """Name to value; the last value if a name occurs more than once."""
    headers: Mapping[str, str]
    """Name in lower case to value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a server answers requests, and the limits of its connections."""

    admit: Callable[[Head], Answer | None]
    """Returns None to accept a request, or an answer to refuse it before its body is read."""
    respond: Callable[[Head, bytes], Awaitable[Answer]]
    """Returns the answer to a request. Must not raise."""
    refuse: Callable[[int, str], Answer]
    """Builds the answer to a violation of the protocol, from a status and a reason."""
    max_body_bytes: int
    """Maximum size of a request's body, in bytes."""
    idle_s: float
    """How long a client may take to send the next request's head."""
    transfer_s: float
    """How long a body may take, in either direction."""


class Listener:
    """Serves connections between `start` and `close`."""

    def __init__(self, policy: Policy, max_connections: int) -> None:
        """A connection beyond `max_connections` is closed at once."""
        self._policy = policy
        self._max_connections = max_connections
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen; returns the server's root URL. Port 0 takes a free port. Raises OSError for an address in use."""
        self._server = await asyncio.start_server(self._accept, host, port)
        address, taken = self._server.sockets[0].getsockname()[:2]
        return f"http://[{address}]:{taken}" if ":" in address else f"http://{address}:{taken}"

    async def close(self) -> None:
        """Stop listening and end every connection with its work. A second call does nothing."""
        if self._server is not None:
            self._server.close()
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._max_connections:
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await serve_connection(reader, writer, self._policy)
        except asyncio.CancelledError:
            pass  # the server is closing; asyncio.streams would log the cancellation of its task
        finally:
            self._connections.discard(task)


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, policy: Policy) -> None:
    """Answer requests until the client leaves, is too slow or breaks the protocol; then close the connection."""
    connection = _Connection(reader, writer, policy)
    try:
        while await connection.serve_one():
            pass
    except (ConnectionError, TimeoutError, h11.LocalProtocolError):
        pass  # the client has left
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, policy: Policy) -> None:
        self._reader = reader
        self._writer = writer
        self._policy = policy
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def serve_one(self) -> bool:
        """Answer one request. Returns whether another may follow."""
        policy = self._policy
        try:
            async with asyncio.timeout(policy.idle_s):
                event = await self._next_event()
            if not isinstance(event, h11.Request):
                return False
            head = _to_head(event)
            refusal = policy.admit(head)
            if refusal is not None:
                return await self._send(refusal, close=True)  # its body has not been read
            async with asyncio.timeout(policy.transfer_s):
                body = await self._read_body(head)
        except h11.RemoteProtocolError as cause:
            return await self._send(policy.refuse(cause.error_status_hint, f"not HTTP/1.1: {cause}"), close=True)
        if body is None:
            too_large = policy.refuse(413, f"the body is larger than {policy.max_body_bytes} bytes")
            return await self._send(too_large, close=True)
        answer = await self._respond(head, body)
        return answer is not None and await self._send(answer)

    async def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                self._writer.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
        return event

    async def _read_body(self, head: Head) -> bytes | None:
        """The body; None if it is too large."""
        length = head.headers.get("content-length", "0")  # h11 accepts only a number
        if int(length) > self._policy.max_body_bytes:
            return None
        body = bytearray()
        while not isinstance(event := await self._next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise h11.RemoteProtocolError("the body ended early")
            body += event.data
            if len(body) > self._policy.max_body_bytes:
                return None
        return bytes(body)

    async def _respond(self, head: Head, body: bytes) -> Answer | None:
        """The answer; None if the client closed the connection first, which cancels the work."""
        work = asyncio.ensure_future(self._policy.respond(head, body))
        watch = asyncio.ensure_future(self._reader.read(_CHUNK_BYTES))
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if watch.done() and not work.done():
                early = watch.result()
                if not early:
                    return None
                self._http.receive_data(early)  # the beginning of the next request
            return await work
        finally:
            for task in (work, watch):
                task.cancel()
            await asyncio.gather(work, watch, return_exceptions=True)

    async def _send(self, answer: Answer, *, close: bool = False) -> bool:
        """Send an answer. Returns whether the connection can be used again."""
        headers = [("content-type", answer.content_type), ("content-length", str(len(answer.body))), *answer.headers]
        if close:
            headers.append(("connection", "close"))
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return False
        for event in (
            h11.Response(status_code=answer.status, headers=headers),
            h11.Data(data=answer.body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._http.send(event) or b"")
        async with asyncio.timeout(self._policy.transfer_s):
            await self._writer.drain()
        if self._http.states != {h11.SERVER: h11.DONE, h11.CLIENT: h11.DONE}:
            await self._linger()
            return False
        self._http.start_next_cycle()
        return True

    async def _linger(self) -> None:
        """Read what the client still sends: closing the connection with unread bytes could destroy the answer before
        the client reads it."""
        if self._writer.can_write_eof():
            self._writer.write_eof()
        async with asyncio.timeout(_LINGER_S):
            for _ in range(_MAX_LINGER_CHUNKS):
                if not await self._reader.read(_CHUNK_BYTES):
                    return


def _to_head(request: h11.Request) -> Head:
    target = urlsplit(request.target.decode("ascii", "replace"))
    return Head(
        method=request.method.decode("ascii", "replace"),
        path=tuple(unquote(part) for part in target.path.split("/") if part),
        query={name: values[-1] for name, values in parse_qs(target.query).items()},
        headers={name.decode("ascii"): value.decode("latin-1") for name, value in request.headers},
    )
