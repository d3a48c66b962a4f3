"""A sandbox behind HTTP, on this machine only: `/run_code` as SandboxFusion speaks it, Turnwise's own `/run` and
sessions.

| request | answer |
|---|---|
| `GET /health` | `{"status": "ok"}`; the only one without a token |
| `POST /run_code` | SandboxFusion's dialect, so that its clients work unchanged |
| `POST /run` | one program, nothing lost in translation |
| `POST /sessions`, `POST /sessions/{id}/fork` | the new session's id |
| `POST /sessions/{id}/run` | one execution |
| `PUT`, `GET /sessions/{id}/files?path=P` | the file's bytes |
| `DELETE /sessions/{id}` | nothing |

Errors are `{"error": "..."}`: 400 a wrong request, 401 no token, 404 no such thing, 413 too large, 429 no room in time,
500 the sandbox failed. The token comes as `Authorization: Bearer TOKEN`, or, for clients that take no headers, as the
password in the URL (`http://any:TOKEN@127.0.0.1:PORT/run_code`). It knows nothing about how the sandbox isolates."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from turnwise_sandbox.errors import SandboxError, boundary
from turnwise_sandbox.remote.connection import Answer, Head, Policy, serve_connection
from turnwise_sandbox.remote.messages import (
    CellBody,
    ErrorAnswer,
    ExecutionAnswer,
    FusionRequest,
    FusionResponse,
    RunBody,
    SessionAnswer,
    SessionBody,
)
from turnwise_sandbox.types import Limits, Sandbox, Session

MIN_TOKEN_CHARS = 16
_MIB = 1 << 20

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")


class _Refused(Exception):
    """A request that is answered with `status` and the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class _Held:
    """A live session, used by one request at a time."""

    session: Session
    limits: Limits
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = field(default_factory=time.monotonic)


class SandboxServer:
    """Serves one sandbox. `start` it, then `close` it; closing the sandbox is its owner's affair."""

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        token: str,
        limits: Limits = Limits(wall_s=60.0, memory_bytes=4 << 30),  # noqa: B008 - frozen
        max_concurrent: int = 64,
        max_queue_s: float = 30.0,
        max_sessions: int = 256,
        session_idle_s: float = 1800.0,
        max_body_bytes: int = 64 * _MIB,
    ) -> None:
        """`limits`: the most that a request may ask for; what is above is lowered. `max_concurrent`: executions at one
        time; further ones wait `max_queue_s` and are then refused with 429. `session_idle_s`: an unused session is
        closed after it.

        Raises SandboxError for a token that could be guessed.
        """
        if len(token) < MIN_TOKEN_CHARS:
            raise SandboxError(
                f"the token has {len(token)} characters, fewer than {MIN_TOKEN_CHARS}; make one with new_token()"
            )
        self._sandbox = sandbox
        self._token = token.encode()
        self._limits = limits
        self._places = asyncio.Semaphore(max_concurrent)
        self._max_queue_s = max_queue_s
        self._max_sessions = max_sessions
        self._session_idle_s = session_idle_s
        self._sessions: dict[str, _Held] = {}
        self._opening = 0
        self._max_connections = 4 * max_concurrent
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._policy = Policy(
            admit=self._admit,
            respond=self._respond,
            refuse=_refuse,
            max_body_bytes=max_body_bytes,
            idle_s=30.0,
            transfer_s=60.0,
        )

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, and return the server's URL; port 0 takes a free one. Raises SandboxError for an address that other
        machines could reach, or when it is taken."""
        if not _is_loopback(host):
            raise SandboxError(
                f"host {host!r} is not this machine alone; serve on 127.0.0.1 and forward the port over ssh"
            )
        try:
            self._server = await asyncio.start_server(self._accept, host, port)
        except OSError as cause:
            raise SandboxError(f"cannot listen on {host}:{port}: {cause.strerror}; choose another port") from cause
        self._sweeper = asyncio.create_task(self._sweep())
        address, taken = self._server.sockets[0].getsockname()[:2]
        return f"http://[{address}]:{taken}" if ":" in address else f"http://{address}:{taken}"

    async def close(self) -> None:
        """Stop listening, end what runs, close the sessions. A second call does nothing."""
        if self._server is not None:
            self._server.close()
        tasks = [*self._connections, *([self._sweeper] if self._sweeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        held, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(one.session.close() for one in held), return_exceptions=True)

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
            pass  # the server closes; asyncio.streams would log the cancellation of its own task
        finally:
            self._connections.discard(task)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._session_idle_s / 4)
            oldest = time.monotonic() - self._session_idle_s
            for id, held in list(self._sessions.items()):
                if held.used < oldest and not held.lock.locked():
                    self._sessions.pop(id, None)
                    with contextlib.suppress(SandboxError):
                        await held.session.close()

    # ---------------------------------------------------------------------------------------- requests

    def _admit(self, head: Head) -> Answer | None:
        if head.path == ("health",) or hmac.compare_digest(_read_token(head), self._token):
            return None
        return _refuse(401, "the token is missing or wrong; send Authorization: Bearer TOKEN")

    async def _respond(self, head: Head, body: bytes) -> Answer:
        try:
            with boundary(f"{head.method} /{'/'.join(head.path)}"):
                try:
                    return await self._route(head, body)
                except _Refused as cause:
                    return _refuse(cause.status, str(cause))
        except SandboxError as cause:
            return _refuse(500, str(cause))

    async def _route(self, head: Head, body: bytes) -> Answer:
        match (head.method, *head.path):
            case ("GET", "health"):
                return Answer(status=200, body=b'{"status": "ok"}')
            case ("POST", "run_code"):
                return await self._run_code(_parse(FusionRequest, body))
            case ("POST", "run"):
                request = _parse(RunBody, body)
                limits = self._lower(request.limits)
                return _to_answer(
                    ExecutionAnswer(
                        execution=await self._in_place(lambda: self._sandbox.run(request.to_program(), limits))
                    )
                )
            case ("POST", "sessions"):
                return await self._open(_parse(SessionBody, body))
            case ("POST", "sessions", id, "run"):
                return await self._run_cell(id, _parse(CellBody, body))
            case ("POST", "sessions", id, "fork"):
                async with self._use(id) as held:
                    return await self._hold(held.session.fork, held.limits)
            case ("PUT", "sessions", id, "files"):
                async with self._use(id) as held:
                    await held.session.write_file(head.query.get("path", ""), body)
                return Answer(status=204)
            case ("GET", "sessions", id, "files"):
                async with self._use(id) as held:
                    content = await held.session.read_file(
                        head.query.get("path", ""), max_bytes=_to_count(head.query.get("max_bytes"))
                    )
                return Answer(status=200, body=content, content_type="application/octet-stream")
            case ("DELETE", "sessions", id):
                if (gone := self._sessions.pop(id, None)) is not None:
                    await gone.session.close()
                return Answer(status=204)
        raise _Refused(404, f"there is no {head.method} /{'/'.join(head.path)} here")

    async def _run_code(self, request: FusionRequest) -> Answer:
        asked = replace(self._limits, wall_s=request.run_timeout)
        if request.memory_limit_MB > 0:
            asked = replace(asked, memory_bytes=request.memory_limit_MB * _MIB)
        try:
            program = request.to_program()
        except ValueError as cause:
            raise _Refused(400, str(cause)) from None
        try:
            execution = await self._in_place(lambda: self._sandbox.run(program, self._lower(asked)))
        except SandboxError as cause:
            return _to_answer(FusionResponse(status="SandboxError", message=str(cause)))
        return _to_answer(FusionResponse.of(execution))

    async def _open(self, body: SessionBody) -> Answer:
        limits = self._lower(body.limits)

        async def open_session() -> Session:
            return await self._sandbox.open(
                body.language, limits=limits, seed=body.seed, profile=body.profile, network=body.network
            )

        return await self._hold(open_session, limits)

    async def _hold(self, make: Callable[[], Awaitable[Session]], limits: Limits) -> Answer:
        if len(self._sessions) + self._opening >= self._max_sessions:
            raise _Refused(429, f"there are {self._max_sessions} live sessions already; close one")
        self._opening += 1
        try:
            session = await self._in_place(make)
        finally:
            self._opening -= 1
        id = secrets.token_urlsafe(16)
        self._sessions[id] = _Held(session, limits)
        return _to_answer(SessionAnswer(id=id))

    async def _run_cell(self, id: str, body: CellBody) -> Answer:
        async with self._use(id) as held:
            timeout_s = None if body.timeout_s is None else min(body.timeout_s, self._limits.wall_s)
            return _to_answer(
                ExecutionAnswer(
                    execution=await self._in_place(lambda: held.session.run(body.code, timeout_s=timeout_s))
                )
            )

    @contextlib.asynccontextmanager
    async def _use(self, id: str) -> AsyncIterator[_Held]:
        """The session, for this request alone."""
        held = self._sessions.get(id)
        if held is None:
            raise _Refused(
                404, f"there is no live session {id[:40]!r}; it was closed, or unused for {self._session_idle_s:g} s"
            )
        async with held.lock:
            held.used = time.monotonic()
            try:
                yield held
            finally:
                held.used = time.monotonic()

    async def _in_place(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `work`, which waits for one of the places."""
        try:
            async with asyncio.timeout(self._max_queue_s):
                await self._places.acquire()
        except TimeoutError:
            raise _Refused(
                429, f"no place became free within {self._max_queue_s:g} s; send less at one time, or try again later"
            ) from None
        try:
            return await work()
        finally:
            self._places.release()

    def _lower(self, asked: Limits) -> Limits:
        """`asked`, nowhere above the server's own. Raises _Refused for a limit that is not positive."""
        lowered = {}
        for one in fields(Limits):
            wanted, most = getattr(asked, one.name), getattr(self._limits, one.name)
            if wanted is not None and not wanted > 0:
                raise _Refused(400, f"limits.{one.name} is {wanted}; it must be above 0")
            lowered[one.name] = wanted if most is None else most if wanted is None else min(wanted, most)
        return Limits(**lowered)


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def _read_token(head: Head) -> bytes:
    """The token a request brings, as bearer or as the password of basic authentication; empty when there is none."""
    kind, _, value = head.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip().encode()
    if kind.lower() == "basic":
        with contextlib.suppress(binascii.Error):
            return base64.b64decode(value, validate=True).partition(b":")[2]
    return b""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parse(body: type[Body], received: bytes) -> Body:
    try:
        return body.model_validate_json(received)
    except ValidationError as cause:
        first = cause.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise _Refused(400, f"{where}: {first['msg']}") from None


def _to_count(text: str | None) -> int:
    if text is None:
        return 16 * _MIB
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise _Refused(400, f"max_bytes is {text[:40]!r}, not a number")
    return int(text)


def _to_answer(body: BaseModel) -> Answer:
    return Answer(status=200, body=body.model_dump_json().encode())


def _refuse(status: int, message: str) -> Answer:
    headers = {401: (("www-authenticate", "Bearer"),), 429: (("retry-after", "1"),)}.get(status, ())
    return Answer(status=status, body=ErrorAnswer(error=message).model_dump_json().encode(), headers=headers)
