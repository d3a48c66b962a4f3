"""Parameters of servers' tools with names that Python uses itself, and parameters that the row fills in."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from turnwise.core.types import ToolCall, ToolSpec
from turnwise.environments.mcp.arguments import McpArguments
from turnwise.environments.mcp.environment import McpEnvironment, Rules
from turnwise.environments.mcp.rows import Row
from turnwise.tools.mcp.results import ServerTool, hide_parameters
from turnwise.tools.tool import Tool, run_tool


class Echo:
    """Stands for a connection: answers with the arguments that reach the server."""

    is_over = False

    async def call(self, tool: ServerTool, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": json.dumps(arguments)}]}


def ask(arguments: dict[str, Any], bind: dict[str, Any] | None = None) -> str:
    server: Any = {"command": "none"}
    chosen = McpArguments(servers={"label": server}, train_path="rows", heldout_path="rows")
    environment = McpEnvironment(Rules(chosen=chosen, make_sessions=None, shared=None, reward=None))  # type: ignore[arg-type]
    environment._connection = Echo()  # type: ignore[assignment]
    environment._row = Row(question="?", bind=bind or {})
    parameters = {"type": "object", "properties": {name: {"type": "string"} for name in ("tool", "self", "key")}}
    served = ServerTool(server="label", name="run", spec=ToolSpec(name="run", description="", parameters=parameters))
    spec = hide_parameters(served.spec, bind or {})
    tool = Tool(spec=spec, function=partial(environment._answer, served))
    call = ToolCall(id="c", name="run", arguments=json.dumps(arguments))
    return asyncio.run(run_tool(tool, call, timeout_s=5, max_chars=500)).observation


def test_any_name_reaches_the_server() -> None:
    odd = {"tool": "a", "self": "b", "arguments": "c"}
    assert json.loads(ask(odd)) == odd


def test_what_the_row_fills_in_is_unknown_to_the_model() -> None:
    assert json.loads(ask({"tool": "a"}, {"key": "secret"})) == {"tool": "a", "key": "secret"}
    assert ask({"key": "mine"}, {"key": "secret"}) == "error: run takes tool, self; unknown: key"
