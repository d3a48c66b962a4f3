"""Only what differs between versions 1 and 2 of the official SDK. All other modules read wire names.

A result or a tool becomes the JSON object that crossed the wire, whose names (`inputSchema`, `isError`) both major
versions share; only their Python attributes differ.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from turnwise.core.errors import ConfigError, EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OLDEST = (1, 23)
"""Oldest supported SDK; 1.20 and older fail to import beside pydantic 2.14."""
INVALID_PARAMS = -32602
"""JSON-RPC's code for arguments or a tool name that the server rejects."""
METHOD_NOT_FOUND = -32601
"""JSON-RPC's code for a request that the server does not know."""
CONNECT_S = 30.0
"""Seconds allowed for connecting over HTTP, or for writing a request."""
MAX_PAGES = 100
"""Maximum number of pages in a list of tools."""


def require_sdk() -> None:
    """Raise ConfigError with the remedy if the package `mcp` is missing or older than `OLDEST`."""
    from importlib.metadata import version

    if importlib.util.find_spec("mcp") is None:
        raise ConfigError("MCP servers need the package mcp; install it with `pip install 'turnwise[mcp]'`")
    major, minor = (int(part) for part in version("mcp").split(".")[:2])
    if (major, minor) < OLDEST:
        raise ConfigError(
            f"MCP servers need mcp>={OLDEST[0]}.{OLDEST[1]}, but {version('mcp')} is installed; upgrade it with `pip "
            "install -U 'turnwise[mcp]'`"
        )


def is_version_2() -> bool:
    """Whether the installed SDK is version 2 or later."""
    import mcp

    return hasattr(mcp, "MCPError")


def to_wire(model: Any) -> dict[str, Any]:
    """Convert a result or a tool of the SDK to the JSON object of the protocol."""
    wire = dict(model.model_dump(mode="json", by_alias=True, exclude_none=True))
    if "structuredContent" in wire:  # as it was sent: the SDK would write NaN as null
        wire["structuredContent"] = getattr(model, "structured_content" if is_version_2() else "structuredContent")
    return wire


def quiet_logs() -> None:
    """Keep the SDK's warnings, which print a traceback for every notification that it cannot read, off the terminal of
    a process that has not set up logging."""
    for name in ("mcp", "client"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def parse_message(line: bytes) -> Any:
    """Parse one line of a server's output into a message for the session. Raises ValueError if it is not one.

    A byte order mark is skipped, and what UTF-8 cannot represent (half of a surrogate pair, bytes of another encoding)
    becomes a replacement character: a result that cannot be read would leave its call unanswered."""
    try:
        return _validate(line)
    except ValueError:
        if not line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{"):
            raise
        return _validate(_repair(line))


def _repair(line: bytes) -> bytes:
    """Return the same JSON in UTF-8. Raises ValueError if it is not JSON."""
    try:
        text = json.dumps(json.loads(line.decode("utf-8-sig", "replace")), ensure_ascii=False)
    except RecursionError as cause:
        raise ValueError("nested too deeply") from cause
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _validate(line: bytes) -> Any:
    from mcp import types
    from mcp.shared.message import SessionMessage

    if is_version_2():
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    return SessionMessage(types.JSONRPCMessage.model_validate_json(line))  # type: ignore[attr-defined]


def format_message(message: Any) -> bytes:
    """Format a message of the session as one line for the server's input."""
    left_out = {"exclude_unset": True} if is_version_2() else {"exclude_none": True}
    return str(message.message.model_dump_json(by_alias=True, **left_out)).encode() + b"\n"


def take_results_as_sent(session: Any) -> None:
    """Keep the SDK from dropping a result whose structured content is missing or is not as the tool's output schema
    says: the model reads its text, and a server's slip in a schema is no fault of the episode."""

    async def accept(name: str, result: Any) -> None:
        return None

    for method in ("validate_tool_result", "_validate_tool_result"):  # of versions 2 and 1
        if hasattr(session, method):
            setattr(session, method, accept)


def _describe_tool_error(label: str, problem: Mapping[str, Any]) -> str:
    """What the SDK finds wrong with a page of tools, with the tool's number in it instead of its path."""
    match problem["loc"]:
        case ("tools", int(number), *rest):
            what = f"lists a tool, number {number + 1}, that breaks the protocol: {'.'.join(map(str, rest))}"
        case place:
            what = f"sends a list of tools that breaks the protocol: {'.'.join(map(str, place))}"
    return f"MCP server {label!r} {what}: {problem['msg']}; correct the server, or take a version of it that is right"


async def list_wire_tools(session: Any, label: str) -> list[dict[str, Any]]:
    """List every tool of a server, in its order, over all pages; none for a server without tools.

    A cursor that comes again, or a page with nothing new, is the end. Raises EnvironmentFault past `MAX_PAGES`, and for
    a tool that the protocol does not allow.
    """
    from mcp import types
    from pydantic import ValidationError

    tools: list[dict[str, Any]] = []
    cursors: set[str | None] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        try:
            if cursor is None:
                page = await session.list_tools()
            elif is_version_2():
                page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            else:
                page = await session.list_tools(cursor)
        except _error_type() as error:
            if error_code(error) == METHOD_NOT_FOUND:
                return tools
            raise
        except ValidationError as error:
            raise EnvironmentFault(_describe_tool_error(label, error.errors()[0])) from error
        wire = to_wire(page)
        new = [tool for tool in wire["tools"] if cursor is None or tool not in tools]
        tools += new
        cursors.add(cursor)
        cursor = wire.get("nextCursor")
        if cursor is None or cursor in cursors or not new:
            return tools
    raise EnvironmentFault(f"MCP server {label!r} lists its tools on more than {MAX_PAGES} pages; make it list fewer")


def error_code(error: BaseException) -> int | None:
    """Return the JSON-RPC code of an error response from the server; None for any other exception."""
    return int(error.error.code) if isinstance(error, _error_type()) else None  # type: ignore[attr-defined]


def _error_type() -> type[BaseException]:
    import mcp

    kind: type[BaseException] = mcp.MCPError if is_version_2() else mcp.McpError  # type: ignore[attr-defined]
    return kind


@asynccontextmanager
async def open_http(
    url: str, headers: Mapping[str, str], answered: Callable[[int, str], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the two message streams of a server's streamable HTTP endpoint. `answered` is called with the status and
    phrase of every answer to a message. Answers may take any time: the caller has a deadline."""
    from mcp.client import streamable_http as transport

    async def hear(response: Any) -> None:
        if response.request.method == "POST":
            answered(response.status_code, response.reason_phrase)

    def build(**options: Any) -> Any:
        client = transport.create_mcp_http_client(**options)
        client.timeout = (CONNECT_S, None, CONNECT_S, CONNECT_S)  # connect, read, write, wait for a connection
        client.event_hooks = {"response": [hear]}
        return client

    if is_version_2():
        async with build(headers=dict(headers)) as client:
            streams: AbstractAsyncContextManager[Any] = transport.streamable_http_client(url, http_client=client)
            async with streams as (read, write):
                yield read, write
        return
    connected = transport.streamablehttp_client(url, headers=dict(headers), httpx_client_factory=build)  # type: ignore[attr-defined]
    async with connected as (read, write, _):
        yield read, write
