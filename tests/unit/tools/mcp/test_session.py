"""Sessions with real server processes: what a server does wrong is one typed error, in time, and leaves no process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("mcp")

from turnwise.core.errors import ConfigError, EnvironmentFault, ToolFailure, ToolTimeout, TurnwiseError
from turnwise.core.types import ToolCall, ToolSpec
from turnwise.tools.mcp.results import to_text
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


def test_every_page_of_tools_is_read():
    async def work(session: McpSession) -> list[str]:
        return [tool["name"] for tool in session.tools]

    assert with_session(hostile("pages"), work) == ["echo", "pid"]


def test_a_line_that_is_no_message_is_skipped():
    assert to_text(with_session(hostile("chatty"), echo)) == "hello"


def test_a_result_of_ten_megabytes_arrives_whole():
    assert len(to_text(with_session(hostile("floods"), echo))) == 10_000_000


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("dies", r"exited \(exit status 3\); stderr: out of luck"),
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


@pytest.mark.parametrize(("mode", "message"), [("refuses", "too rude"), ("is_error", "no such file")])
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

    with pytest.raises(ToolTimeout, match=r"'echo' ran past 0\.3 s"):
        with_session(hostile("hangs"), work)


def test_a_server_that_never_shakes_hands_is_given_up():
    with pytest.raises(EnvironmentFault, match=r"did not shake hands and list its tools within 0\.5 s"):
        with_session(hostile("mute"), echo, open_s=0.5)


@pytest.mark.parametrize(
    ("server", "error", "message"),
    [
        (McpServer(command="python", args=["-c", "raise SystemExit('no licence')"]), EnvironmentFault, "no licence"),
        (McpServer(command="there_is_no_such_program"), ConfigError, "is no program that can run"),
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
    "fields", [{}, {"command": "a", "url": "http://b"}, {"url": "file:///etc"}, {"url": "http://"}]
)
def test_a_server_has_one_target(fields: dict[str, Any]):
    with pytest.raises(ValueError, match=r"one of command and url|no HTTP address"):
        McpServer(**fields)


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
