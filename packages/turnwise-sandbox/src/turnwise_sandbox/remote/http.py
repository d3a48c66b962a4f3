"""A sandbox behind an HTTP server: that of `serve.py`, or one that implements SandboxFusion's `/run_code`.

A request is repeated only if no connection could be made, so nothing runs twice. Every wait has a deadline.
`Execution.level` is the level that the server reports; "http" if it reports none."""

from __future__ import annotations

import asyncio
import os
from typing import Literal, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.foreign import check_path, encode_code
from turnwise_sandbox.remote.credentials import read_credential
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
from turnwise_sandbox.trees import Tree, refuse_tree
from turnwise_sandbox.types import Execution, Limits, Network, Profile, Program, Session

TOKEN_VARIABLE = "TURNWISE_SANDBOX_TOKEN"
LEVEL = "http"
_CONNECT_S = 5.0
_CONNECT_RETRIES = 2
_KEEPALIVE_S = 5.0
"""Shorter than the server keeps connections: if the server closed a connection, the client could not tell whether its
request was received."""
_MAX_ANSWER_BYTES = 256 << 20

Answer = TypeVar("Answer", bound=BaseModel)


class HttpSandbox:
    """Implements `Sandbox` over HTTP. Use it in one event loop only."""

    def __init__(
        self,
        url: str,
        *,
        dialect: Literal["turnwise", "sandbox_fusion"] = "turnwise",
        max_concurrent: int = 64,
        max_queue_s: float = 60.0,
    ) -> None:
        """`url` is the server's root, without a path. The `dialect` "sandbox_fusion" has no sessions, uses `wall_s` and
        `memory_bytes` of the limits only, and ignores seed, profile and network. `max_concurrent` bounds the requests
        at a time. A request may take `max_queue_s` seconds besides its own `wall_s`, including the wait for the server.

        The bearer token is read from TURNWISE_SANDBOX_TOKEN, which is optional for "sandbox_fusion". Raises
        SandboxError if it is missing, ValueError for a URL that is not plain http(s).
        """
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query:
            raise ValueError(
                f"sandbox url must be http(s)://host:port without user or query; put the token into {TOKEN_VARIABLE}"
            )
        self._url = str(parsed).rstrip("/")
        self._dialect = dialect
        self._max_queue_s = max_queue_s
        self._places = asyncio.Semaphore(max_concurrent)
        headers = {"content-type": "application/json"}
        if dialect == "turnwise" or TOKEN_VARIABLE in os.environ:
            headers["authorization"] = f"Bearer {read_credential(TOKEN_VARIABLE, f'the sandbox server at {self._url}')}"
        pool = httpx.Limits(max_connections=max_concurrent, keepalive_expiry=_KEEPALIVE_S)
        self._sessions: set[HttpSession] = set()
        self._client = httpx.AsyncClient(
            base_url=self._url,
            headers=headers,
            transport=httpx.AsyncHTTPTransport(retries=_CONNECT_RETRIES, limits=pool),
            timeout=httpx.Timeout(None, connect=_CONNECT_S),  # `send` has a deadline for the rest
        )

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - frozen
        """See `Sandbox.run`. Raises SandboxError if the server is unreachable, refuses, fails or takes too long."""
        refuse_tree(program.tree, "the HTTP sandbox")
        for path in (*program.files, *program.outputs):
            check_path(path)
        if self._dialect == "turnwise":
            body: BaseModel = RunBody.of(program, limits)
            return (await self.request("POST", "/run", body, ExecutionAnswer, run_s=limits.wall_s)).execution
        answer = await self.request(
            "POST", "/run_code", FusionRequest.of(program, limits), FusionResponse, run_s=limits.wall_s
        )
        try:
            return answer.to_execution(limits, LEVEL)
        except ValueError as cause:
            raise SandboxError(f"{self._url}: {cause}") from None

    async def open(
        self,
        language: Literal["python", "bash"] = "python",
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        seed: int = 0,
        profile: Profile = "std",
        network: Network = "none",
        tree: Tree | None = None,
    ) -> Session:
        """See `Sandbox.open`. Raises SandboxError for a tree, and if the dialect has no sessions or the server has too
        many."""
        refuse_tree(tree, "the HTTP sandbox")
        if self._dialect != "turnwise":
            raise SandboxError(
                f"{self._url} uses SandboxFusion's API, which has no sessions; use a Turnwise sandbox server"
            )
        body = SessionBody(language=language, limits=limits, seed=seed, profile=profile, network=network)
        answer = await self.request("POST", "/sessions", body, SessionAnswer)
        return self.add_session(answer.id, limits)

    async def close(self) -> None:
        """Close the sessions and the connections; the server then ends their executions. A second call does nothing."""
        await asyncio.gather(*(session.close() for session in tuple(self._sessions)), return_exceptions=True)
        await self._client.aclose()

    def add_session(self, id: str, limits: Limits) -> HttpSession:
        """The session that the server calls `id`; `close` ends it."""
        session = HttpSession(self, id, limits)
        self._sessions.add(session)
        return session

    def forget_session(self, session: HttpSession) -> None:
        """Leave a session that is closed out of `close`."""
        self._sessions.discard(session)

    async def request(
        self, method: str, path: str, body: BaseModel | None, answer: type[Answer], *, run_s: float = 0.0
    ) -> Answer:
        """Send one request and read its answer. Raises SandboxError."""
        content = None if body is None else _to_json(body)
        return _parse(answer, await self.send(method, path, content, run_s=run_s), self._url)

    async def send(self, method: str, path: str, content: bytes | None, *, run_s: float = 0.0) -> bytes:
        """Send one request; returns the body of the answer. Raises SandboxError for every status but 200 and 204."""
        deadline_s = run_s + self._max_queue_s
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._places,
                self._client.stream(method, path, content=content) as response,
            ):
                received = bytearray()
                async for chunk in response.aiter_bytes():
                    received += chunk
                    if len(received) > _MAX_ANSWER_BYTES:
                        raise SandboxError(
                            f"{self._url}{path} sent an answer longer than {_MAX_ANSWER_BYTES} bytes; ask for fewer "
                            "files"
                        )
        except TimeoutError:
            raise SandboxError(
                f"{self._url}{path} did not answer within {deadline_s:g} s; is the server overloaded?"
            ) from None
        except (httpx.HTTPError, RuntimeError) as cause:  # RuntimeError: the client is closed
            if isinstance(cause, SandboxError):
                raise
            raise SandboxError(f"{self._url}{path}: {type(cause).__name__}: {cause}") from cause
        if response.status_code not in (200, 204):
            raise SandboxError(f"{self._url}{path} answered {response.status_code}: {_read_error(bytes(received))}")
        return bytes(received)


class HttpSession:
    """Implements `Session` over HTTP."""

    def __init__(self, sandbox: HttpSandbox, id: str, limits: Limits) -> None:
        """Made by `HttpSandbox.open` and `HttpSession.fork`."""
        self._sandbox = sandbox
        self._path = f"/sessions/{quote(id, safe='')}"
        self._limits = limits
        self._closed = False

    async def run(self, code: str, *, timeout_s: float | None = None) -> Execution:
        """See `Session.run`."""
        run_s = self._limits.wall_s if timeout_s is None else timeout_s
        body = CellBody(code=encode_code(code), timeout_s=timeout_s)
        return (await self._sandbox.request("POST", f"{self._path}/run", body, ExecutionAnswer, run_s=run_s)).execution

    async def fork(self) -> Session:
        """See `Session.fork`."""
        answer = await self._sandbox.request("POST", f"{self._path}/fork", None, SessionAnswer)
        return self._sandbox.add_session(answer.id, self._limits)

    async def write_file(self, path: str, content: bytes) -> None:
        """See `Session.write_file`."""
        await self._sandbox.send("PUT", self._file(path), content)

    async def read_file(self, path: str, *, max_bytes: int = 16 << 20) -> bytes:
        """See `Session.read_file`."""
        return await self._sandbox.send("GET", f"{self._file(path)}&max_bytes={max_bytes}", None)

    async def changes(self) -> dict[str, bytes | None]:
        """Always raises SandboxError, because this backend takes no trees."""
        raise SandboxError("the session has no tree; the HTTP sandbox does not support trees")

    async def reset(self) -> None:
        """Always raises SandboxError, because this backend takes no trees."""
        raise SandboxError("the session has no tree; the HTTP sandbox does not support trees")

    async def close(self) -> None:
        """See `Session.close`."""
        if not self._closed:
            self._closed = True
            self._sandbox.forget_session(self)
            await self._sandbox.send("DELETE", self._path, None)

    def _file(self, path: str) -> str:
        return f"{self._path}/files?path={quote(check_path(path), safe='')}"


def _to_json(body: BaseModel) -> bytes:
    try:
        return body.model_dump_json().encode()
    except ValueError as cause:
        raise SandboxError(f"the request cannot be sent as JSON: {cause}") from None


def _parse(answer: type[Answer], received: bytes, url: str) -> Answer:
    try:
        return answer.model_validate_json(received)
    except ValidationError as cause:
        first = cause.errors()[0]
        raise SandboxError(
            f"{url} sent an answer that is not a valid {answer.__name__}: {first['loc']}: {first['msg']}"
        ) from None


def _read_error(received: bytes) -> str:
    try:
        return ErrorAnswer.model_validate_json(received).error[:500]
    except ValidationError:
        return received[:200].decode("utf-8", "replace") or "no message"
