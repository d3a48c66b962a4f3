"""Where the official SDK differs between its versions 1 and 2, and nothing else. Everything past here reads wire names.

A result or a tool becomes the JSON object that crossed the wire, whose names (`inputSchema`, `isError`) both majors
share; only their Python attributes differ.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from turnwise.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OLDEST = (1, 23)
"""Oldest SDK that is supported; 1.20 and older fail to import beside pydantic 2.14."""
INVALID_PARAMS = -32602
"""JSON-RPC's code for arguments or a tool name that the server refuses."""
MAX_PAGES = 100
"""Most pages of a list of tools that are read."""


def require_sdk() -> None:
    """Raise ConfigError with the remedy if the package `mcp` is missing or older than `OLDEST`."""
    from importlib.metadata import version

    if importlib.util.find_spec("mcp") is None:
        raise ConfigError("MCP servers need the package mcp; install it with `pip install 'turnwise[mcp]'`")
    major, minor = (int(part) for part in version("mcp").split(".")[:2])
    if (major, minor) < OLDEST:
        raise ConfigError(
            f"MCP servers need mcp>={OLDEST[0]}.{OLDEST[1]}, installed is {version('mcp')}; upgrade it with "
            "`pip install -U 'turnwise[mcp]'`"
        )


def is_version_2() -> bool:
    """Whether the installed SDK is version 2 or later."""
    import mcp

    return hasattr(mcp, "MCPError")


def to_wire(model: Any) -> dict[str, Any]:
    """A result or a tool of the SDK as the JSON object of the protocol."""
    return dict(model.model_dump(mode="json", by_alias=True, exclude_none=True))


def parse_message(line: bytes) -> Any:
    """One line of a server's output as a message for the session. Raises ValueError when it is none."""
    from mcp import types
    from mcp.shared.message import SessionMessage

    if is_version_2():
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    return SessionMessage(types.JSONRPCMessage.model_validate_json(line))  # type: ignore[attr-defined]


def format_message(message: Any) -> bytes:
    """A message of the session as one line for the server's input."""
    left_out = {"exclude_unset": True} if is_version_2() else {"exclude_none": True}
    return str(message.message.model_dump_json(by_alias=True, **left_out)).encode() + b"\n"


async def list_wire_tools(session: Any) -> list[dict[str, Any]]:
    """Every tool of a server, in its order, over all pages (at most `MAX_PAGES`)."""
    from mcp import types

    tools: list[dict[str, Any]] = []
    page = await session.list_tools()
    for _ in range(MAX_PAGES):
        wire = to_wire(page)
        tools += wire["tools"]
        cursor = wire.get("nextCursor")
        if cursor is None:
            break
        if is_version_2():
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        else:
            page = await session.list_tools(cursor)
    return tools


def error_code(error: BaseException) -> int | None:
    """The JSON-RPC code of an error that the server answered with; None for any other exception."""
    import mcp

    kind: type[BaseException] = mcp.MCPError if is_version_2() else mcp.McpError  # type: ignore[attr-defined]
    return int(error.error.code) if isinstance(error, kind) else None  # type: ignore[attr-defined]


@asynccontextmanager
async def open_http(url: str, headers: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """The two message streams of a server's streamable HTTP endpoint."""
    from mcp.client import streamable_http as transport

    if is_version_2():
        async with transport.create_mcp_http_client(headers=dict(headers)) as client:
            streams: AbstractAsyncContextManager[Any] = transport.streamable_http_client(url, http_client=client)
            async with streams as (read, write):
                yield read, write
        return
    async with transport.streamablehttp_client(url, headers=dict(headers)) as (read, write, _):  # type: ignore[attr-defined]
        yield read, write
