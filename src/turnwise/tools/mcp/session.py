"""One session with a server, owned by one task: the SDK's context managers must be exited in the task that entered
them.

Tools can be called from any task; when the server ends, every unfinished call fails at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, TurnwiseError
from turnwise.tools.mcp import sdk
from turnwise.tools.mcp.process import open_process
from turnwise.tools.mcp.results import to_text
from turnwise.tools.mcp.servers import McpServer

CLOSE_S = 10.0
"""Seconds allowed for closing a session before it is abandoned."""


class McpSession:
    """A connected server. `open` once, `call` from any task of the same event loop, `close` at the end."""

    def __init__(self, server: McpServer, label: str) -> None:
        """`label` names the server in messages."""
        self.label = label
        self.tools: tuple[Mapping[str, Any], ...] = ()
        """The server's tools as JSON objects of the protocol, filled by `open`."""
        self.is_over = False
        """Always False: in this protocol a server cannot end an episode."""
        self._server = server
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._session: Any = None
        self._status = ""
        """HTTP status of the last message, if it was refused."""

    @property
    def is_alive(self) -> bool:
        """Whether the session is open and its server has not ended."""
        return self._ready.done() and not self._ends

    @property
    def _ends(self) -> bool:
        """Whether the server or the session has ended."""
        return self._owner is None or self._owner.done() or (self._ended is not None and self._ended.done())

    async def open(self, timeout_s: float) -> None:
        """Start or reach the server, shake hands and list its tools.

        Raises EnvironmentFault when that fails or takes longer than `timeout_s`, ConfigError when the server cannot
        exist: no program, no variable, no SDK.
        """
        sdk.require_sdk()
        sdk.quiet_logs()
        self._owner = asyncio.ensure_future(self._own())
        try:
            done, _ = await asyncio.wait({self._owner, self._ready}, timeout=timeout_s, return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._owner in done:
            raise self._failure()
        if self._ready not in done:
            await self.close()
            raise EnvironmentFault(
                f"MCP server {self.label!r} did not complete the handshake and list its tools within {timeout_s:g} s; "
                "check that it starts on its own, or raise environment.args.connect_timeout_s"
            )

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool; returns its result as the protocol's JSON object. The caller's deadline cancels the wait.

        Raises ToolFailure when the server refuses the tool or the arguments or marks the result as an error,
        EnvironmentFault when the server ends meanwhile or fails otherwise.
        """
        if not self.is_alive:
            raise self._failure()
        assert self._owner is not None
        assert self._ended is not None
        calling: asyncio.Future[Any] = asyncio.ensure_future(self._session.call_tool(name, dict(arguments)))
        try:
            await asyncio.wait({calling, self._owner, self._ended}, return_when="FIRST_COMPLETED")
        finally:
            if not calling.done():
                calling.cancel()
                calling.add_done_callback(_discard)
        if not calling.done() or calling.cancelled():
            raise self._failure()
        problem = calling.exception()
        if problem is not None:
            await self._raise(problem, name)
        result = sdk.to_wire(calling.result())
        if result.get("isError"):
            raise ToolFailure(to_text(result) or "the tool failed and gave no reason")
        return result

    async def close(self) -> None:
        """End the session and its server process, within `CLOSE_S`. A second call does nothing."""
        self._closing.set()
        if self._owner is None or self._owner.done():
            return
        if not self._ready.done():
            self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=CLOSE_S)
        if not self._owner.done():
            self._owner.cancel()
        self._owner.add_done_callback(_discard)

    async def _raise(self, problem: BaseException, name: str) -> None:
        """Raise the error that a failed call stands for. If the server ended, the reason arrives shortly after the call
        fails."""
        assert self._ended is not None
        code = sdk.error_code(problem)
        if code == sdk.INVALID_PARAMS:
            raise ToolFailure(str(problem))
        await asyncio.wait({self._ended}, timeout=0.2)
        if self._ends:
            raise self._failure() from problem
        text = self._describe(problem)
        raise EnvironmentFault(f"MCP server {self.label!r} failed in tool {name!r}: {text}") from problem

    def _failure(self) -> TurnwiseError:
        """Return why the session is over."""
        ends = [future for future in (self._ended, self._owner) if future and future.done() and not future.cancelled()]
        problem = next(filter(None, (_first_cause(future.exception()) for future in ends)), None)
        if isinstance(problem, TurnwiseError):
            return type(problem)(str(problem))  # each call that fails raises one of its own
        what = f"failed: {self._describe(problem)}" if problem else "was used outside its session; open it first"
        return EnvironmentFault(f"MCP server {self.label!r} {what}")

    async def _own(self) -> None:
        from mcp import ClientSession

        async with self._transport() as (read, write, ended), ClientSession(read, write) as session:
            self._ended = ended
            sdk.take_results_as_sent(session)
            closing: asyncio.Future[Any] = asyncio.ensure_future(self._closing.wait())
            try:
                await _until(ended, session.initialize())
                self.tools = tuple(await _until(ended, sdk.list_wire_tools(session, self.label)))
                if not self.tools:
                    raise ConfigError(
                        f"MCP server {self.label!r} has no tools; leave it out, or make it register them before it "
                        "answers"
                    )
                self._session = session
                self._ready.set_result(None)
                await asyncio.wait({closing, ended}, return_when="FIRST_COMPLETED")
                if not closing.done():
                    ended.result()
            finally:
                closing.cancel()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[tuple[Any, Any, asyncio.Future[None]]]:
        """Yield both message streams, and a future that receives an error when the server ends by itself."""
        if self._server.command:
            async with open_process(self._server, self.label) as process:
                yield process.read, process.write, process.ended
            return
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        headers = self._server.build_headers()
        async with sdk.open_http(self._server.url, headers, self._hear_status) as (read, write):
            yield read, write, never

    def _hear_status(self, status: int, phrase: str) -> None:
        self._status = f"HTTP {status} {phrase}" if status >= 400 else ""

    def _describe(self, problem: BaseException) -> str:
        """Describe an exception in one line, with the HTTP status that the SDK leaves out."""
        cause = _first_cause(problem) or problem
        text = " ".join(f"{type(cause).__name__}: {cause}".split())[:500]
        return f"{text} ({self._status})" if self._status else text


async def _until(ended: asyncio.Future[None], work: Awaitable[Any]) -> Any:
    """Return the result of `work`, or raise the error of a server that ends before that."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.wait({working, ended}, return_when="FIRST_COMPLETED")
        if working.done() and working.exception() is not None:
            with contextlib.suppress(TimeoutError):  # the session fails a moment before the process reports why
                await asyncio.wait_for(asyncio.shield(ended), 2.0)
    finally:
        if not working.done():
            working.cancel()
            working.add_done_callback(_discard)
    return ended.result() if ended.done() and not ended.cancelled() else working.result()


def _first_cause(problem: BaseException | None) -> BaseException | None:
    """Return the innermost first exception of nested groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def _discard(task: asyncio.Future[Any]) -> None:
    """Read the exception of a task that nothing awaits, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
