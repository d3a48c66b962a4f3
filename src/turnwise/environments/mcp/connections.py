"""Who holds sessions with servers: every episode its own, or all episodes of an event loop one per server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from turnwise.core.errors import EnvironmentFault
from turnwise.tools.mcp.results import ServerTool, name_tools


class ToolSession(Protocol):
    """A session with one server, by whatever protocol. `McpSession` says what each member means."""

    tools: tuple[Mapping[str, Any], ...]
    is_over: bool
    """The server has ended the episode."""

    @property
    def is_alive(self) -> bool: ...

    async def open(self, timeout_s: float) -> None: ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]: ...

    async def close(self) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    """Open sessions with all servers of a family, and their tools under the names a model sees."""

    sessions: Mapping[str, ToolSession]
    tools: tuple[ServerTool, ...]
    is_suspect: bool = False
    """A call failed or ran past its deadline, so the server may be broken: no further episode gets this connection."""
    num_users: int = 0

    @property
    def is_usable(self) -> bool:
        """Whether another episode may use it."""
        return not self.is_suspect and all(session.is_alive for session in self.sessions.values())

    @property
    def is_over(self) -> bool:
        """Whether a server has ended the episode."""
        return any(session.is_over for session in self.sessions.values())

    def find(self, name: str) -> ServerTool | None:
        """The tool that a model sees under that name, else the first that has it at its server; None if there is
        none."""
        seen = (tool for tool in self.tools if tool.spec.name == name)
        return next(seen, None) or next((tool for tool in self.tools if tool.name == name), None)

    async def call(self, tool: ServerTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool; see `McpSession.call`. A call that fails or is cancelled makes this suspect."""
        try:
            return await self.sessions[tool.server].call(tool.name, arguments)
        except (asyncio.CancelledError, EnvironmentFault):
            self.is_suspect = True
            raise

    async def close(self) -> None:
        """Close every session."""
        await asyncio.gather(*(session.close() for session in self.sessions.values()))


MakeSessions = Callable[[], Mapping[str, ToolSession]]
"""A new session with every server, by label, not yet open."""


async def connect(make_sessions: MakeSessions, timeout_s: float) -> Connection:
    """Sessions with every server, opened at once; `timeout_s` is what each has. Raises what `open` of a session raises,
    after closing the others."""
    sessions = make_sessions()
    connection = Connection(sessions=sessions, tools=())
    try:
        outcomes = await asyncio.gather(*(s.open(timeout_s) for s in sessions.values()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        listed = [(label, tool) for label, session in sessions.items() for tool in session.tools]
        connection.tools = name_tools(listed)
    except BaseException:
        await connection.close()
        raise
    return connection


@dataclass(slots=True, eq=False)
class _Shared:
    """The connection of one event loop, and the lock that lets only one task open it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    current: Connection | None = None


class SharedConnections:
    """One connection per event loop, opened by its first user and again when a server ended or a call hung.

    It stays open between episodes and ends with the event loop, which cancels the tasks that own its sessions.
    """

    def __init__(self, make_sessions: MakeSessions, timeout_s: float) -> None:
        """See `connect`."""
        self._make_sessions = make_sessions
        self._timeout_s = timeout_s
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()

    async def acquire(self) -> Connection:
        """The connection of this loop, for one episode. Raises what `connect` raises."""
        shared = self._by_loop.setdefault(asyncio.get_running_loop(), _Shared())
        async with shared.lock:
            if shared.current is None or not shared.current.is_usable:
                retired, shared.current = shared.current, None
                if retired is not None and not retired.num_users:
                    await retired.close()
                shared.current = await connect(self._make_sessions, self._timeout_s)
            shared.current.num_users += 1
            return shared.current

    async def release(self, connection: Connection) -> None:
        """An episode is over; a connection that no further episode gets is closed by its last user."""
        connection.num_users -= 1
        if not connection.num_users and not connection.is_usable:
            await connection.close()
