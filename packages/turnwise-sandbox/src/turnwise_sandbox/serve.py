"""Serves a sandbox over HTTP, on this machine only: SandboxFusion's `/run_code`, and Turnwise's `/run` and sessions.

| request | answer |
|---|---|
| `GET /health` | `{"status": "ok"}`; the only request without a token |
| `POST /run_code` | one program, in SandboxFusion's dialect, for its clients |
| `POST /run` | one program, with every field of `Program` and `Execution` |
| `POST /sessions`, `POST /sessions/{id}/fork` | the new session's id |
| `POST /sessions/{id}/run` | one execution |
| `PUT`, `GET /sessions/{id}/files?path=P` | the file's bytes |
| `DELETE /sessions/{id}` | nothing |

Errors are `{"error": "..."}`: 400 malformed request, 401 missing or wrong token, 404 unknown path or session, 413 body
too large, 429 no slot in time or too many sessions, 500 the sandbox failed. The token is sent as
`Authorization: Bearer TOKEN` or, by clients that cannot set headers, as the password in the URL
(`http://any:TOKEN@127.0.0.1:PORT/run_code`)."""

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
from turnwise_sandbox.remote.connection import Answer, Head, Listener, Policy
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
    """Makes the server answer a request with `status` and the message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class _OpenSession:
    """A live session, its limits, and when it was last used. `lock` lets one request use it at a time."""

    session: Session
    limits: Limits
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = field(default_factory=time.monotonic)


class SandboxServer:
    """Serves one sandbox between `start` and `close`. Does not close the sandbox."""

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
        """`limits` bounds those of a request; larger ones are lowered. `max_concurrent` bounds the executions at a
        time; others wait for `max_queue_s` seconds and are then refused with 429. A session that is not used for
        `session_idle_s` seconds is closed.

        Raises SandboxError for a token with fewer than 16 characters, which could be guessed.
        """
        if len(token) < MIN_TOKEN_CHARS:
            raise SandboxError(
                f"the token has {len(token)} characters, fewer than {MIN_TOKEN_CHARS}; create one with new_token()"
            )
        self._sandbox = sandbox
        self._token = token.encode()
        self._limits = limits
        self._slots = asyncio.Semaphore(max_concurrent)
        self._max_queue_s = max_queue_s
        self._max_sessions = max_sessions
        self._session_idle_s = session_idle_s
        self._sessions: dict[str, _OpenSession] = {}
        self._opening = 0
        self._sweeper: asyncio.Task[None] | None = None
        policy = Policy(
            admit=self._admit,
            respond=self._respond,
            refuse=_refuse,
            max_body_bytes=max_body_bytes,
            idle_s=30.0,
            transfer_s=60.0,
        )
        self._listener = Listener(policy, 4 * max_concurrent)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, and return the server's URL. Port 0 takes a free port. Raises SandboxError for an address that other
        machines can reach or that is in use."""
        if not _is_loopback(host):
            raise SandboxError(
                f"host {host!r} can be reached by other machines; serve on 127.0.0.1 and forward the port over ssh"
            )
        try:
            url = await self._listener.start(host, port)
        except OSError as cause:
            raise SandboxError(f"cannot listen on {host}:{port}: {cause.strerror}; choose another port") from cause
        self._sweeper = asyncio.create_task(self._sweep())
        return url

    async def close(self) -> None:
        """Stop listening, end all executions and close the sessions. A second call does nothing."""
        await self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(entry.session.close() for entry in sessions), return_exceptions=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._session_idle_s / 4)
            oldest = time.monotonic() - self._session_idle_s
            for id, entry in list(self._sessions.items()):
                if entry.used < oldest and not entry.lock.locked():
                    self._sessions.pop(id, None)
                    with contextlib.suppress(SandboxError):
                        await entry.session.close()

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
                        execution=await self._in_slot(lambda: self._sandbox.run(request.to_program(), limits))
                    )
                )
            case ("POST", "sessions"):
                return await self._open(_parse(SessionBody, body))
            case ("POST", "sessions", id, "run"):
                return await self._run_cell(id, _parse(CellBody, body))
            case ("POST", "sessions", id, "fork"):
                async with self._use(id) as entry:
                    return await self._add_session(entry.session.fork, entry.limits)
            case ("PUT", "sessions", id, "files"):
                async with self._use(id) as entry:
                    await entry.session.write_file(head.query.get("path", ""), body)
                return Answer(status=204)
            case ("GET", "sessions", id, "files"):
                async with self._use(id) as entry:
                    content = await entry.session.read_file(
                        head.query.get("path", ""), max_bytes=_to_count(head.query.get("max_bytes"))
                    )
                return Answer(status=200, body=content, content_type="application/octet-stream")
            case ("DELETE", "sessions", id):
                if (removed := self._sessions.pop(id, None)) is not None:
                    await removed.session.close()
                return Answer(status=204)
        raise _Refused(404, f"this server has no {head.method} /{'/'.join(head.path)}")

    async def _run_code(self, request: FusionRequest) -> Answer:
        asked = replace(self._limits, wall_s=request.run_timeout)
        if request.memory_limit_MB > 0:
            asked = replace(asked, memory_bytes=request.memory_limit_MB * _MIB)
        try:
            program = request.to_program()
        except ValueError as cause:
            raise _Refused(400, str(cause)) from None
        try:
            execution = await self._in_slot(lambda: self._sandbox.run(program, self._lower(asked)))
        except SandboxError as cause:
            return _to_answer(FusionResponse(status="SandboxError", message=str(cause)))
        return _to_answer(FusionResponse.of(execution))

    async def _open(self, body: SessionBody) -> Answer:
        limits = self._lower(body.limits)

        async def open_session() -> Session:
            return await self._sandbox.open(
                body.language, limits=limits, seed=body.seed, profile=body.profile, network=body.network
            )

        return await self._add_session(open_session, limits)

    async def _add_session(self, make: Callable[[], Awaitable[Session]], limits: Limits) -> Answer:
        if len(self._sessions) + self._opening >= self._max_sessions:
            raise _Refused(429, f"{self._max_sessions} sessions are open, the maximum for this server; close one")
        self._opening += 1
        try:
            session = await self._in_slot(make)
        finally:
            self._opening -= 1
        id = secrets.token_urlsafe(16)
        self._sessions[id] = _OpenSession(session, limits)
        return _to_answer(SessionAnswer(id=id))

    async def _run_cell(self, id: str, body: CellBody) -> Answer:
        code = body.code.decode("utf-8", "surrogatepass")
        async with self._use(id) as entry:
            timeout_s = None if body.timeout_s is None else min(body.timeout_s, self._limits.wall_s)
            return _to_answer(
                ExecutionAnswer(execution=await self._in_slot(lambda: entry.session.run(code, timeout_s=timeout_s)))
            )

    @contextlib.asynccontextmanager
    async def _use(self, id: str) -> AsyncIterator[_OpenSession]:
        """Reserve a session for this request. Raises _Refused if there is no such session."""
        entry = self._sessions.get(id)
        if entry is None:
            raise _Refused(
                404, f"there is no live session {id[:40]!r}; it was closed, or idle for {self._session_idle_s:g} s"
            )
        async with entry.lock:
            entry.used = time.monotonic()
            try:
                yield entry
            finally:
                entry.used = time.monotonic()

    async def _in_slot(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `work`, which starts once a slot is free. Raises _Refused if none is free in time."""
        try:
            async with asyncio.timeout(self._max_queue_s):
                await self._slots.acquire()
        except TimeoutError:
            raise _Refused(
                429, f"no slot became free within {self._max_queue_s:g} s; send fewer requests at once, or try again"
            ) from None
        try:
            return await work()
        finally:
            self._slots.release()

    def _lower(self, asked: Limits) -> Limits:
        """`asked` with each limit lowered to the server's. Raises _Refused for a limit that is not positive."""
        lowered = {}
        for item in fields(Limits):
            wanted, most = getattr(asked, item.name), getattr(self._limits, item.name)
            if wanted is not None and not wanted > 0:
                raise _Refused(400, f"limits.{item.name} is {wanted}; it must be above 0")
            lowered[item.name] = wanted if most is None else most if wanted is None else min(wanted, most)
        return Limits(**lowered)


def new_token() -> str:
    """A new token of 32 random bytes, as text."""
    return secrets.token_urlsafe(32)


def _read_token(head: Head) -> bytes:
    """The token of a request, from bearer or basic authentication; empty if there is none."""
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
