"""Sessions with servers: each episode has its own, or all episodes of an event loop share one per server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from turnwise.core.errors import EnvironmentFault
from turnwise.tools.mcp.results import ServerTool, name_tools


class ToolSession(Protocol):
    """A session with one server, over any protocol. `McpSession` describes each member."""

    tools: tuple[Mapping[str, Any], ...]
    is_over: bool
    """Whether the server has ended the episode."""

    @property
    def is_alive(self) -> bool: ...

    async def open(self, timeout_s: float) -> None: ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]: ...

    async def close(self) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    """Open sessions with all servers of a family, and their tools under the names that a model sees."""

    sessions: Mapping[str, ToolSession]
    tools: tuple[ServerTool, ...]
    is_suspect: bool = False
    """Whether a call failed or exceeded its deadline, so that the server may be broken: no further episode gets this
    connection."""
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
        """Return the tool that a model sees under this name, else the first that its server calls so; None if there is
        none."""
        seen = (tool for tool in self.tools if tool.spec.name == name)
        return next(seen, None) or next((tool for tool in self.tools if tool.name == name), None)

    async def call(self, tool: ServerTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool; see `McpSession.call`. A call that fails or is cancelled makes this connection suspect."""
        try:
            return await self.sessions[tool.server].call(tool.name, arguments)
        except (asyncio.CancelledError, EnvironmentFault):
            self.is_suspect = True
            raise

    async def close(self) -> None:
        """Close every session."""
        await asyncio.gather(*(session.close() for session in self.sessions.values()))


MakeSessions = Callable[[], Mapping[str, ToolSession]]
"""Creates a new, unopened session with every server, by label."""


async def connect(make_sessions: MakeSessions, timeout_s: float) -> Connection:
    """Open sessions with all servers concurrently; `timeout_s` applies to each. Raises what a session's `open` raises,
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
    """The connection of one event loop, and a lock so that only one task opens it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    current: Connection | None = None


class SharedConnections:
    """One connection per event loop, opened by its first user and opened again after a server ended or a call hung.

    It stays open between episodes and ends with the event loop, which cancels the tasks that own its sessions.
    """

    def __init__(self, make_sessions: MakeSessions, timeout_s: float) -> None:
        """See `connect`."""
        self._make_sessions = make_sessions
        self._timeout_s = timeout_s
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()

    async def acquire(self) -> Connection:
        """Return this loop's connection, for one episode. Raises what `connect` raises."""
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
        """Note that an episode is over; the last user of an unusable connection closes it."""
        connection.num_users -= 1
        if not connection.num_users and not connection.is_usable:
            await connection.close()
