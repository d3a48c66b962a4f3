"""Sessions with real server processes: what a server does wrong is one typed error, in time, and leaves no process."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("mcp")

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, ToolTimeout, TurnwiseError
from turnwise.core.types import ToolCall, ToolSpec
from turnwise.tools.mcp.results import to_text
from turnwise.tools.mcp.sdk import parse_message
from turnwise.tools.mcp.servers import McpServer
from turnwise.tools.mcp.session import McpSession
from turnwise.tools.tool import Tool, run_tool

T = TypeVar("T")
SERVER = Path(__file__).with_name("hostile_server.py")
DEADLINE_S = 20.0


def hostile(mode: str, **fields: Any) -> McpServer:
    return McpServer(command="python", args=["-S", str(SERVER), mode], **fields)


def with_session(server: McpServer, work: Callable[[McpSession], Awaitable[T]], open_s: float = DEADLINE_S) -> T:
    """The result of `work` in an open session, which is closed after it."""

    async def run() -> T:
        session = McpSession(server, "hostile")
        async with asyncio.timeout(DEADLINE_S):
            try:
                await session.open(open_s)
                return await work(session)
            finally:
                await session.close()

    return asyncio.run(run())


def echo(session: McpSession) -> Awaitable[dict[str, Any]]:
    return session.call("echo", {"text": "hello"})


async def pid_of(session: McpSession) -> int:
    return int(to_text(await session.call("pid", {})))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_a_tool_is_listed_and_called():
    async def work(session: McpSession) -> tuple[list[str], dict[str, Any]]:
        return [tool["name"] for tool in session.tools], await echo(session)

    names, result = with_session(hostile("fine"), work)
    assert names == ["echo", "pid"]
    assert to_text(result) == "hello"


@pytest.mark.parametrize("mode", ["pages", "one_cursor"])
def test_every_page_of_tools_is_read(mode: str):
    async def work(session: McpSession) -> list[str]:
        return [tool["name"] for tool in session.tools]

    assert with_session(hostile(mode), work) == ["echo", "pid"]


def test_a_server_without_tools_is_refused():
    with pytest.raises(ConfigError, match="'hostile' has no tools; leave it out"):
        with_session(hostile("knows_no_tools"), echo)


def test_a_number_that_is_none_stays_one():
    assert to_text(with_session(hostile("not_a_number"), echo)) == '{"mean": NaN}'


def result_line(text: bytes) -> bytes:
    return b'{"jsonrpc": "2.0", "id": 1, "result": {"content": "%s"}}\n' % text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (result_line(rb"half \ud83d"), "half \ufffd"),
        (result_line(b"caf\xe9"), "caf\ufffd"),
        (b"\xef\xbb\xbf" + result_line(b"marked"), "marked"),
        (result_line(rb"whole \ud83d\ude00"), "whole \U0001f600"),
    ],
)
def test_a_message_in_damaged_text_is_still_a_message(line: bytes, text: str):
    message = parse_message(line).message
    assert getattr(message, "root", message).result == {"content": text}


def test_what_is_no_message_stays_none():
    for line in (b"listening", b"{oops", b"[1]", b'{"a": 1}', b"{" + b'"a":[' * 100_000):
        with pytest.raises(ValueError, match=r".") as caught:
            parse_message(line)
        assert not isinstance(caught.value, TurnwiseError)


def test_a_line_that_is_no_message_is_skipped():
    assert to_text(with_session(hostile("chatty"), echo)) == "hello"


def test_a_result_of_ten_megabytes_arrives_whole():
    assert len(to_text(with_session(hostile("floods"), echo))) == 10_000_000


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("dies", r"exited \(exit status 3\); stderr: out of luck"),
        ("leaves_a_child", r"exited \(exit status 3\)"),
        ("closes", "closed its output"),
        ("endless_line", "sent a line of more than 16 MiB"),
        ("endless_garbage", "no JSON-RPC message to its output, first b'listening"),
        ("wrong_shape", "failed in tool 'echo': ValidationError"),
        ("protocol_error", "failed in tool 'echo': .*disk full"),
    ],
)
def test_a_server_that_fails_is_one_fault_and_no_process(mode: str, message: str):
    pids: list[int] = []

    async def work(session: McpSession) -> None:
        pids.append(await pid_of(session))
        await echo(session)

    with pytest.raises(EnvironmentFault, match=f"MCP server 'hostile' .*{message}") as caught:
        with_session(hostile(mode), work)
    assert "\n" not in str(caught.value).split("ValidationError")[0]
    assert wait_until_gone(pids[0])


@pytest.mark.parametrize(
    ("mode", "message"),
    [("refuses", "too rude"), ("is_error", "no such file"), ("silent_error", "failed and gave no reason")],
)
def test_what_the_model_did_wrong_is_told_to_the_model(mode: str, message: str):
    with pytest.raises(ToolFailure, match=message):
        with_session(hostile(mode), echo)


def test_endless_stderr_neither_blocks_nor_fills_the_memory():
    async def work(session: McpSession) -> float:
        await echo(session)
        started = time.perf_counter()
        for _ in range(20):
            await asyncio.sleep(0.01)
        return time.perf_counter() - started

    assert with_session(hostile("endless_stderr"), work) < 5


def test_every_call_under_way_fails_when_the_server_dies():
    async def work(session: McpSession) -> list[Any]:
        return await asyncio.gather(*(echo(session) for _ in range(5)), return_exceptions=True)

    assert all(isinstance(outcome, EnvironmentFault) for outcome in with_session(hostile("dies"), work))


def test_a_call_that_never_answers_is_a_tool_timeout():
    async def work(session: McpSession) -> None:
        async def call(text: str) -> str:
            return to_text(await session.call("echo", {"text": text}))

        spec = ToolSpec(name="echo", description="", parameters={"properties": {"text": {"type": "string"}}})
        tool = Tool(spec=spec, function=call)
        await run_tool(tool, ToolCall(id="c", name="echo", arguments='{"text": "a"}'), timeout_s=0.3, max_chars=10)

    with pytest.raises(ToolTimeout, match=r"'echo' ran longer than 0.3 s"):
        with_session(hostile("hangs"), work)


def test_a_server_that_never_shakes_hands_is_given_up():
    with pytest.raises(EnvironmentFault, match=r"did not complete the handshake and list its tools within 0.5 s"):
        with_session(hostile("mute"), echo, open_s=0.5)


@pytest.mark.parametrize(
    ("server", "error", "message"),
    [
        (McpServer(command="python", args=["-c", "raise SystemExit('no licence')"]), EnvironmentFault, "no licence"),
        (McpServer(command="there_is_no_such_program"), ConfigError, "is not an executable program"),
        (McpServer(command="python", cwd="/there/is/no/folder"), ConfigError, "is not a folder"),
        (McpServer(command="python", env={"A": "${NOT_SET_AT_ALL}"}), ConfigError, "NOT_SET_AT_ALL, which is not set"),
        (McpServer(url="http://127.0.0.1:9/mcp"), EnvironmentFault, "failed: Connect"),
    ],
)
def test_a_server_that_cannot_be_reached_says_why(server: McpServer, error: type[TurnwiseError], message: str):
    with pytest.raises(error, match=message):
        with_session(server, echo)


def test_only_named_variables_reach_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TOKEN", "s3cret")
    monkeypatch.setenv("ALLOWED", "1")
    monkeypatch.setenv("FORBIDDEN", "1")
    server = hostile("environment", env={"SECRET": "a ${TOKEN}"}, inherit=["ALLOWED"], cwd=str(tmp_path))
    seen = to_text(with_session(server, echo))
    assert "ALLOWED" in seen
    assert "FORBIDDEN" not in seen
    assert "TOKEN" not in seen
    assert seen.endswith(f" a s3cret {tmp_path}")


@pytest.mark.parametrize(
    "fields",
    [{}, {"command": "a", "url": "http://b"}, {"url": "file:///etc"}, {"url": "http://"}, {"url": "http://${HOST}/"}],
)
def test_a_server_has_one_target(fields: dict[str, Any]):
    with pytest.raises(ValueError, match=r"either command or url|not an HTTP address|contains a reference"):
        McpServer(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"command": "a", "env": {"KEY": "${KEY:-none}"}}, r"env\.KEY .* contains '\$\{KEY:-none\}', .* write \$\{NAM"),
        ({"url": "http://b", "headers": {"X": "${env:KEY}"}}, r"headers\.X .* contains '\$\{env:KEY\}'"),
        ({"url": "http://b", "headers": {"X": "Bearer ${EMPTY}"}}, r"headers\.X .* begins or ends with white space"),
        ({"url": "http://b", "headers": {"X": "Bearer ${LINE}"}}, r"headers\.X .* begins or ends with white space"),
        ({"url": "http://b", "headers": {"X": "schlüssel"}}, r"headers\.X .* is not printable ASCII"),
        ({"url": "http://b", "headers": {"X Y": "1"}}, "'X Y', which is not a valid header name"),
    ],
)
def test_what_cannot_be_filled_in_is_refused_without_its_value(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
):
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("LINE", "s3cret\n")
    server = McpServer(**fields)
    with pytest.raises(ConfigError, match=message) as caught:
        server.build_env() if server.command else server.build_headers()
    assert "s3cret" not in str(caught.value)


def test_a_program_is_found_by_the_path_that_it_will_see(tmp_path: Path):
    program = tmp_path / "only_there"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert McpServer(command="only_there", env={"PATH": str(tmp_path)}).find_program() == str(program)
    with pytest.raises(ConfigError, match="put its arguments into args"):
        McpServer(command="python -m server").find_program()


class Web(BaseHTTPRequestHandler):
    """A streamable HTTP server of one tool, which refuses or delays calls as its path says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if request["method"] == "tools/call" and self.path == "/refuses":
            return self.answer(401, b"")
        if request["method"] == "tools/call":
            time.sleep(0.6)
        tool = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
        version = request.get("params", {}).get("protocolVersion")
        info = {"name": "web", "version": "1"}
        results = {
            "initialize": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info},
            "tools/list": {"tools": [tool]},
            "tools/call": {"content": [{"type": "text", "text": "late"}]},
        }
        if "id" not in request:
            return self.answer(202, b"")
        whole = {"jsonrpc": "2.0", "id": request["id"], "result": results[request["method"]]}
        return self.answer(200, json.dumps(whole).encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(405, b"")

    do_DELETE = do_GET

    def log_message(self, format: str, *arguments: Any) -> None: ...


@pytest.fixture
def web() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_refusal_over_http_tells_its_status(web: str):
    with pytest.raises(EnvironmentFault, match=r"MCP server 'hostile' failed.*\(HTTP 401 Unauthorized\)"):
        with_session(McpServer(url=f"{web}/refuses"), echo)


def test_a_call_over_http_has_the_callers_deadline_alone(web: str, monkeypatch: pytest.MonkeyPatch):
    # The SDK gives up reading after five minutes; here after a tenth of a second, which the answer takes six times.
    shared: Any = importlib.import_module("mcp.shared._httpx_utils")
    monkeypatch.setattr(shared, "MCP_DEFAULT_SSE_READ_TIMEOUT", 0.1)
    assert to_text(with_session(McpServer(url=f"{web}/slow"), echo)) == "late"


def test_what_environments_print_stays_out_of_the_protocol():
    program = (
        "import os, subprocess, sys\n"
        "from turnwise.tools.mcp.serving import keep_streams\n"
        "with keep_streams() as (reading, writing):\n"
        "    print('a print')\n"
        "    subprocess.run(['sh', '-c', 'echo a child; cat'])\n"
        "    writing.write('read ' + reading.readline())\n"
        "print('after')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [sys.executable, "-c", program], input="a line\n", capture_output=True, text=True, env=environment, timeout=60
    )
    assert ended.stdout == "read a line\nafter\n"
    assert sorted(ended.stderr.splitlines()) == ["a child", "a print"]


def test_closing_ends_a_server_that_stays():
    async def work(session: McpSession) -> int:
        return await pid_of(session)

    assert wait_until_gone(with_session(hostile("stays"), work))


def test_the_end_of_the_event_loop_ends_the_server():
    async def run() -> int:
        session = McpSession(hostile("fine"), "hostile")
        await session.open(DEADLINE_S)
        return await pid_of(session)  # never closed

    assert wait_until_gone(asyncio.run(run()))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at the parent's death is Linux's")
def test_a_killed_process_takes_its_server_with_it():
    program = (
        "import asyncio, sys\n"
        "from turnwise.tools.mcp.session import McpSession\n"
        "from turnwise.tools.mcp.servers import McpServer\n"
        "async def main():\n"
        f"    session = McpSession(McpServer(command='python', args=['-S', {str(SERVER)!r}, 'stays']), 'x')\n"
        "    await session.open(20)\n"
        "    result = await session.call('pid', {})\n"
        "    print(result['content'][0]['text'], flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    assert wait_until_gone(pid)


def test_a_session_that_is_not_open_says_so():
    async def run() -> None:
        await McpSession(hostile("fine"), "hostile").call("echo", {})

    with pytest.raises(EnvironmentFault, match="outside its session"):
        asyncio.run(run())


@pytest.mark.parametrize(("mode", "text"), [("schema_missing", "hello"), ("schema_wrong", "n is three")])
def test_a_result_that_breaks_its_output_schema_is_read(mode: str, text: str) -> None:
    assert to_text(with_session(hostile(mode), echo)) == text


def test_a_list_of_tools_that_breaks_the_protocol_names_the_tool() -> None:
    said = "'hostile' lists a tool, number 3, that breaks the protocol: inputSchema.type: Field required"
    with pytest.raises(EnvironmentFault, match=said):
        with_session(hostile("untyped"), echo)
