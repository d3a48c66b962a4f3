"""A Model Context Protocol server that calls two functions, on stdin and stdout or as streamable HTTP on loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from turnwise.hosts.local import LOOPBACK
from turnwise.hosts.loopback import open_listener
from turnwise.tools.mcp.sdk import is_version_2

ListTools = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
"""Returns the tools on offer, as JSON objects of the protocol."""
CallTool = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Returns the result of a call by name and arguments, as a JSON object of the protocol. Raises no expected errors."""


def build_server(name: str, instructions: str, list_tools: ListTools, call_tool: CallTool) -> Any:
    """Build the SDK's server object from these two functions."""
    from mcp import types
    from mcp.server.lowlevel import Server

    async def list_all(*_: Any) -> Any:
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in await list_tools()])

    async def call(params: Any) -> Any:
        return types.CallToolResult.model_validate(await call_tool(params.name, params.arguments or {}))

    if is_version_2():

        async def call_2(_: Any, params: Any) -> Any:
            return await call(params)

        return Server(name, instructions=instructions, on_list_tools=list_all, on_call_tool=call_2)
    server: Any = Server(name, instructions=instructions)

    async def list_1(_: Any) -> Any:
        return types.ServerResult(await list_all())  # type: ignore[operator]

    async def call_1(request: Any) -> Any:
        return types.ServerResult(await call(request.params))  # type: ignore[operator]

    server.request_handlers[types.ListToolsRequest] = list_1
    server.request_handlers[types.CallToolRequest] = call_1
    return server


@contextmanager
def keep_streams() -> Iterator[tuple[TextIO, TextIO]]:
    """Reserve standard input and output for the protocol: output of environments, their modules and their children goes
    to stderr meanwhile, and their input is empty."""
    sys.stdout.flush()
    copies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        with (
            open(copies[0], encoding="utf-8", errors="replace", closefd=False) as reading,
            open(copies[1], "w", encoding="utf-8", closefd=False) as writing,
        ):
            yield reading, writing
    finally:
        sys.stdout.flush()
        for number, copy in enumerate(copies):
            os.dup2(copy, number)
            os.close(copy)


async def serve_stdio(server: Any, streams: tuple[TextIO, TextIO]) -> None:
    """Serve one client on `keep_streams` until it closes them."""
    import anyio
    from mcp.server.stdio import stdio_server

    reading, writing = map(anyio.wrap_file, streams)
    async with stdio_server(reading, writing) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(server: Any, port: int, started: Callable[[str], None]) -> None:
    """Serve streamable HTTP on the loopback interface until interrupted; `started` is called with the URL.

    Port 0 picks a free one. Raises EnvironmentFault when the port is taken.
    """
    import uvicorn
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    manager = StreamableHTTPSessionManager(app=server, security_settings=_loopback_only())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await manager.handle_request(scope, receive, send)

    listener = open_listener(port)
    config = uvicorn.Config(app, lifespan="off", log_level="warning")
    started(f"http://{LOOPBACK}:{listener.getsockname()[1]}/mcp")
    async with manager.run():
        await uvicorn.Server(config).serve(sockets=[listener])


def _loopback_only() -> Any:
    """Refuse requests whose Host or Origin names another machine, as a rebinding web page sends them."""
    from mcp.server.transport_security import TransportSecuritySettings

    names = (LOOPBACK, "localhost")
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )
